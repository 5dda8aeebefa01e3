// Tables, which can be copied as CSV.
import { h } from "../elements.js";
import { t } from "../language.js";
import { copyButton } from "./copying.js";

const NUMBER = /^[-+]?[\d.,]+%?$/;

/** Return a table and the element that holds it. */
export function tableOf() {
  const table = h("table");
  const copy = copyButton(t("Copy as CSV"), () => csvOf(table));
  return { element: h("div", { class: "table" }, h("div", { class: "wide", tabIndex: 0, role: "group", "aria-label": t("Table") }, table), copy), table };
}

/** Return the cells of a table as CSV (RFC 4180). A cell that a spreadsheet would run as a formula gets an apostrophe. */
export function csvOf(table) {
  const rows = [...table.rows].map((row) => [...row.cells].map((cell) => quoted(cell.textContent.trim())).join(","));
  return `${rows.join("\r\n")}\r\n`;
}

function quoted(text) {
  const safe = /^[=+@\-\t]/.test(text) && !NUMBER.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
