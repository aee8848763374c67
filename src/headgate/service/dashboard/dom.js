// Creates and changes elements. Text is always set as text, because clients choose keys and names.

export const $ = (id) => document.getElementById(id);

/** An element with attributes (`class`, `text` and listeners `onclick: fn` too) and children. */
export function element(name, attributes = {}, ...children) {
  const created = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "text") created.textContent = String(value);
    else if (key.startsWith("on")) created.addEventListener(key.slice(2), value);
    else if (key === "class") created.className = value;
    else created.setAttribute(key, value === true ? "" : String(value));
  }
  created.append(...children.filter((one) => one !== null && one !== undefined));
  return created;
}

export const code = (text) => element("code", { text });

/** Set the text of *target*, without a mutation if it is the same. */
export function setText(target, value) {
  const text = String(value);
  if (target.textContent !== text) target.textContent = text;
}

/** Replace the children of *target*; empty values are left out. */
export const setChildren = (target, ...children) => target.replaceChildren(...children.filter(Boolean));

/** A container that scrolls horizontally, by keyboard too if its content is too wide. */
export function scrollable(name, ...children) {
  const container = element("div", { class: "scrollable" }, ...children);
  const observer = new ResizeObserver(() => {
    const isWider = container.scrollWidth > container.clientWidth + 1;
    for (const [attribute, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", name]]) {
      if (isWider) container.setAttribute(attribute, value);
      else container.removeAttribute(attribute);
    }
  });
  for (const one of [container, ...container.children]) observer.observe(one);
  return container;
}

const MAX_ROWS_AT_ONCE = 60;
const HIDDEN_ROW_INTERVAL = 5;

/** A table that updates its cells in place: the focus and the position of a screen reader are kept.
 *
 * *columns* are `{head, kind, make(cell, row), show(cell, row)}`: `make` once, `show` at each update.
 * The first column is the header of its row. If *isLong* and there are more than `MAX_ROWS_AT_ONCE`
 * rows, those that are not visible are updated in one of `HIDDEN_ROW_INTERVAL` calls.
 */
export class Table {
  #visible = new Set();
  #updates = 0;

  constructor(caption, columns, { empty = "None.", cards = false, isLong = false } = {}) {
    this.columns = columns;
    this.observer = isLong ? new IntersectionObserver((changes) => this.#setVisible(changes), { rootMargin: "200px" }) : null;
    this.rows = new Map();
    this.body = element("tbody", { role: "rowgroup" });
    const heads = columns.map(({ head, kind }) => element("th", { scope: "col", role: "columnheader", class: kind, text: head }));
    const head = element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...heads));
    this.table = element("table", { role: "table", class: cards ? "cards" : null },
      element("caption", { class: "visually-hidden", text: caption }), head, this.body);
    this.empty = element("p", { class: "note", text: empty });
    this.container = scrollable(caption, this.table);
    this.element = element("div", {}, this.container, this.empty);
    this.show([]);
  }

  /** Show *rows*, each with a unique `id`, in this order. */
  show(rows) {
    this.container.hidden = !rows.length;
    this.empty.hidden = Boolean(rows.length);
    const ids = new Set(rows.map((row) => row.id));
    for (const [id, { tr }] of this.rows) if (!ids.has(id)) this.#remove(id, tr);
    let place = this.body.firstChild;
    this.#updates += 1;
    for (const [number, row] of rows.entries()) {
      const isNew = !this.rows.has(row.id);
      const entry = this.rows.get(row.id) ?? this.#add(row);
      if (entry.tr === place) place = place.nextSibling;
      else this.body.insertBefore(entry.tr, place);
      entry.row = row;
      const isDue = rows.length <= MAX_ROWS_AT_ONCE || isNew || this.#visible.has(entry.tr) || (number + this.#updates) % HIDDEN_ROW_INTERVAL === 0;
      if (isDue || !this.observer) this.#update(entry);
    }
  }

  #update({ row, tr, cells }) {
    tr.className = row.class ?? "";
    this.columns.forEach((column, index) => column.show(cells[index], row));
  }

  #setVisible(changes) {
    for (const { target, isIntersecting } of changes) {
      if (!isIntersecting) { this.#visible.delete(target); continue; }
      this.#visible.add(target);
      if (target.entry.row) this.#update(target.entry);
    }
  }

  #remove(id, tr) {
    tr.remove();
    this.observer?.unobserve(tr);
    this.#visible.delete(tr);
    this.rows.delete(id);
  }

  #add(row) {
    const cells = this.columns.map(({ head, kind, make }, index) => {
      const cell = index ? element("td", { role: "cell", class: kind, "data-head": head })
        : element("th", { scope: "row", role: "rowheader", class: kind, "data-head": head });
      make?.(cell, row);
      return cell;
    });
    const entry = { cells, tr: element("tr", { role: "row" }, ...cells) };
    this.rows.set(row.id, entry);
    entry.tr.entry = entry;
    this.observer?.observe(entry.tr);
    return entry;
  }
}

/** A column of text. */
export const textColumn = (head, of, kind = "") => ({ head, kind, show: (cell, row) => setText(cell, of(row)) });

/** A column of `code` elements. */
export const codeColumn = (head, of, kind = "") => ({
  head, kind, make: (cell) => cell.append(element("code")), show: (cell, row) => setText(cell.firstChild, of(row)),
});

/** Show names and values in a `dl`; its elements are kept. */
export function showPairs(list, entries) {
  const boxes = list.boxes ?? (list.boxes = new Map());
  const names = new Set(entries.map(([name]) => name));
  for (const [name, box] of boxes) if (!names.has(name)) { box.remove(); boxes.delete(name); }
  for (const [name, value, kind] of entries) {
    let box = boxes.get(name);
    if (!box) {
      box = element("div", {}, element("dt", { text: name }), element("dd"));
      boxes.set(name, box);
      list.append(box);
    }
    box.className = kind ?? "";
    setText(box.lastChild, value);
  }
}

/** Open a dialog; the browser restores the focus when it closes. */
export function openDialog(dialog) {
  if (!dialog.open) dialog.showModal();
}

/** Let buttons and the Escape key close a dialog if *mayClose* returns true. */
export function letClose(dialog, mayClose = () => true) {
  for (const button of dialog.querySelectorAll("[data-close]")) button.addEventListener("click", () => { if (mayClose()) dialog.close(); });
  dialog.addEventListener("cancel", (event) => { if (!mayClose()) event.preventDefault(); });
}
