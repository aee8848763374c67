// Creates and changes elements. Text is always set as text, because clients choose keys and names.

import { hrefOf } from "./routes.js";

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

/** A table that updates its cells in place: the focus and the position of a screen reader are kept.
 *
 * *columns* are `{head, kind, make(cell, row), show(cell, row)}`: `make` once, `show` at each update.
 * The first column is the header of its row.
 */
export class Table {
  constructor(caption, columns, { empty = "None.", cards = false } = {}) {
    this.columns = columns;
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
    for (const [id, { tr }] of this.rows) {
      if (ids.has(id)) continue;
      tr.remove();
      this.rows.delete(id);
    }
    let place = this.body.firstChild;
    for (const row of rows) {
      const { tr, cells } = this.rows.get(row.id) ?? this.#add(row);
      if (tr === place) place = place.nextSibling;
      else this.body.insertBefore(tr, place);
      this.columns.forEach((column, index) => column.show(cells[index], row));
    }
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
    return entry;
  }
}

/** A column of text. */
export const textColumn = (head, of, kind = "") => ({ head, kind, show: (cell, row) => setText(cell, of(row)) });

/** A column of `code` elements. */
export const codeColumn = (head, of, kind = "") => ({
  head, kind, make: (cell) => cell.append(element("code")), show: (cell, row) => setText(cell.firstChild, of(row)),
});

/** A key of a counter with digests cut short: "tenant=~0d3b5a91…". */
export const shortKey = (key) => String(key).replace(/([~#][0-9a-f]{8})[0-9a-f]+/g, "$1…");

/** A column of keys: a link to the caller, and a button that copies the whole key. */
export const keyColumn = (head, of) => ({
  head, kind: "key",
  make: (cell) => {
    const copy = element("button", { type: "button", class: "copy", text: "Copy", onclick: () => copyText(cell.key, copy) });
    cell.append(element("a", {}, element("code")), " ", copy);
  },
  show: (cell, row) => {
    if (cell.key === of(row)) return;
    cell.key = of(row);
    const [link, copy] = cell.children;
    setText(link.firstChild, shortKey(cell.key));
    link.setAttribute("href", hrefOf("callers", cell.key));
    link.title = cell.key;
    copy.setAttribute("aria-label", `Copy ${shortKey(cell.key)}`);
  },
});

/** Copy *text*, and say so on the *button*. */
export async function copyText(text, button) {
  let isCopied = true;
  try { await navigator.clipboard.writeText(text); } catch { isCopied = false; }
  const before = button.dataset.text ?? button.textContent;
  button.dataset.text = before;
  button.textContent = isCopied ? "Copied" : "Not copied";
  setTimeout(() => { button.textContent = before; }, 1_500);
}

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
