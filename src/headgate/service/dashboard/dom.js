// Creates and changes elements. Text is always set as text, because clients choose keys and names.

export const $ = (id) => document.getElementById(id);

/** An element with attributes (`class`, `text` and listeners `onclick: fn` too) and children. */
export function made(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "text") element.textContent = String(value);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.filter((one) => one !== null && one !== undefined));
  return element;
}

export const code = (text) => made("code", { text });

/** Set the text of *element*. True if it has changed. */
export function say(element, text) {
  const wanted = String(text);
  if (element.textContent === wanted) return false;
  element.textContent = wanted;
  return true;
}

export const fill = (element, ...children) => element.replaceChildren(...children.filter(Boolean));

/** A container that scrolls horizontally, by keyboard too if its content is too wide. */
export function wide(name, ...children) {
  const place = made("div", { class: "wide" }, ...children);
  const watch = new ResizeObserver(() => {
    const isWider = place.scrollWidth > place.clientWidth + 1;
    for (const [attribute, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", name]]) {
      if (isWider) place.setAttribute(attribute, value);
      else place.removeAttribute(attribute);
    }
  });
  for (const one of [place, ...place.children]) watch.observe(one);
  return place;
}

const MANY = 60;
const TURNS = 5;

/** A table whose rows stay where they are while their cells change: focus and reading are kept.
 *
 * *columns* are `{head, kind, make(cell, row), show(cell, row)}`: `make` once, `show` at each update.
 * The first column heads its row. In a table that *isLong*, of more than `MANY` rows those that are
 * not visible are updated less often.
 */
export class Table {
  #seen = new Set();
  #turn = 0;

  constructor(caption, columns, { empty = "None.", cards = false, isLong = false } = {}) {
    this.columns = columns;
    this.watch = isLong ? new IntersectionObserver((found) => this.#see(found), { rootMargin: "200px" }) : null;
    this.rows = new Map();
    this.body = made("tbody", { role: "rowgroup" });
    const heads = columns.map(({ head, kind }) => made("th", { scope: "col", role: "columnheader", class: kind, text: head }));
    const head = made("thead", { role: "rowgroup" }, made("tr", { role: "row" }, ...heads));
    this.table = made("table", { role: "table", class: cards ? "cards" : null },
      made("caption", { class: "unseen", text: caption }), head, this.body);
    this.empty = made("p", { class: "note", text: empty });
    this.wide = wide(caption, this.table);
    this.element = made("div", {}, this.wide, this.empty);
    this.show([]);
  }

  /** Show *rows*, each with a unique `id`, in this order. */
  show(rows) {
    this.wide.hidden = !rows.length;
    this.empty.hidden = Boolean(rows.length);
    const wanted = new Set(rows.map((row) => row.id));
    for (const [id, { line }] of this.rows) if (!wanted.has(id)) this.#remove(id, line);
    let place = this.body.firstChild;
    this.#turn += 1;
    for (const [number, row] of rows.entries()) {
      const isNew = !this.rows.has(row.id);
      const known = this.rows.get(row.id) ?? this.#add(row);
      if (known.line === place) place = place.nextSibling;
      else this.body.insertBefore(known.line, place);
      known.row = row;
      const isDue = rows.length <= MANY || isNew || this.#seen.has(known.line) || (number + this.#turn) % TURNS === 0;
      if (isDue || !this.watch) this.#tell(known);
    }
  }

  #tell({ row, line, cells }) {
    line.className = row.class ?? "";
    this.columns.forEach((column, index) => column.show(cells[index], row));
  }

  #see(found) {
    for (const { target, isIntersecting } of found) {
      if (!isIntersecting) { this.#seen.delete(target); continue; }
      this.#seen.add(target);
      if (target.known.row) this.#tell(target.known);
    }
  }

  #remove(id, line) {
    line.remove();
    this.watch?.unobserve(line);
    this.#seen.delete(line);
    this.rows.delete(id);
  }

  #add(row) {
    const cells = this.columns.map(({ head, kind, make }, index) => {
      const cell = index ? made("td", { role: "cell", class: kind, "data-head": head })
        : made("th", { scope: "row", role: "rowheader", class: kind, "data-head": head });
      make?.(cell, row);
      return cell;
    });
    const known = { cells, line: made("tr", { role: "row" }, ...cells) };
    this.rows.set(row.id, known);
    known.line.known = known;
    this.watch?.observe(known.line);
    return known;
  }
}

/** A column of text. */
export const text = (head, of, kind = "") => ({ head, kind, show: (cell, row) => say(cell, of(row)) });

/** A column of text that is code. */
export const codes = (head, of, kind = "") => ({
  head, kind, make: (cell) => cell.append(made("code")), show: (cell, row) => say(cell.firstChild, of(row)),
});

/** The names and values of a `dl`, kept in place. */
export function pairs(list, entries) {
  const shown = list.shown ?? (list.shown = new Map());
  const names = new Set(entries.map(([name]) => name));
  for (const [name, box] of shown) if (!names.has(name)) { box.remove(); shown.delete(name); }
  for (const [name, value, kind] of entries) {
    let box = shown.get(name);
    if (!box) {
      box = made("div", {}, made("dt", { text: name }), made("dd"));
      shown.set(name, box);
      list.append(box);
    }
    box.className = kind ?? "";
    say(box.lastChild, value);
  }
}

/** Open a dialog; the browser restores the focus when it closes. */
export function open(dialog) {
  if (!dialog.open) dialog.showModal();
}

/** Let buttons and the Escape key close a dialog if *may* returns true. */
export function closing(dialog, may = () => true) {
  for (const button of dialog.querySelectorAll("[data-close]")) button.addEventListener("click", () => { if (may()) dialog.close(); });
  dialog.addEventListener("cancel", (event) => { if (!may()) event.preventDefault(); });
}
