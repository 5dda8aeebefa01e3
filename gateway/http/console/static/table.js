// Tables with a heading.

import { h } from "./elements.js";

/** Return a section with a heading and a table, or the text `empty` if there are no rows. */
export function table(caption, heads, empty, rows) {
  if (!rows.length) return h("section", {}, h("h2", {}, caption), h("p", { class: "nothing" }, empty));
  const isNumber = (column) => rows.every((row) => /^[\d.,\u00a0\u202f’]+$/.test(row[column]));
  const kinds = heads.map((_, column) => (isNumber(column) ? "number" : null));
  const cells = (rest) => rest.map((cell, column) => h("td", { class: kinds[column + 1] }, cell));
  const row = ([first, ...rest]) => h("tr", {}, h("th", { scope: "row" }, first), cells(rest));
  return h(
    "section",
    {},
    h("h2", {}, caption),
    h(
      "div",
      { class: "scroller", tabIndex: 0, role: "region", "aria-label": caption },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, heads.map((name, column) => h("th", { scope: "col", class: kinds[column] }, name)))),
        h("tbody", {}, rows.map(row)),
      ),
    ),
  );
}
