// Editors of values, by their kinds (gateway/config/key_kinds.py). Each is an element; `change` is called with a new value while
// one types, null for none. A value that is not of its kind is passed on as it is: the gateway says what is wrong with it.

import { button } from "../controls.js";
import { fill, h, readable } from "../elements.js";
import { icon } from "../icons.js";
import { t } from "../language.js";
import { words } from "./groups.js";

const LONG = /(^|\.)(instructions|system_prompt|prompt|identifier_instructions)$/;
const HIDDEN = "(hidden)"; // in place of a secret that stands in the file itself
const TOKENS = /^(gateway|people\.[^.]+|mcp_access\.[^.]+)\.token$/;

/** The editor of a key. `spec` is that of the gateway, `value` the one to show, `context` has `id`, `describedBy`, `disabled`,
 * `change(value)`, `changeEntry(name, value)` and `undoEntry(name)` for tables of secrets, `pending` for a secret that was entered and
 * is not saved, `move()` for one that stands in the file itself, and `suggestions`, the id of a datalist. */
export function editorOf(spec, value, context) {
  const { kind } = spec;
  const make = {
    boolean: boolean, choice, integer: number, number, secret, list, table, record, any: json,
  }[kind.name] ?? text;
  return make(spec, value, context);
}

/** Whether the values of a key are texts of several lines. */
export const isLong = (key = "") => LONG.test(key);

const common = ({ id, describedBy, disabled }) => ({ id, disabled, "aria-describedby": describedBy });

function boolean(spec, value, context) {
  if (spec.default === undefined) {
    const chosen = value === undefined ? "" : String(value);
    return options([["", t("Default")], ["true", t("On")], ["false", t("Off")]], chosen, context, (each) => (each ? each === "true" : null));
  }
  const input = h("input", { type: "checkbox", role: "switch", class: "switch", checked: value ?? spec.default, ...common(context) });
  input.addEventListener("change", () => context.change(input.checked));
  return input;
}

function choice(spec, value, context) {
  const none = spec.default === undefined ? [["", t("Default")]] : [];
  const choices = spec.kind.choices.map((each) => [each, each === spec.default ? t("{value} (default)", { value: each }) : each]);
  return options([...none, ...choices], value ?? spec.default ?? "", context, (each) => each || null);
}

function options(choices, chosen, context, valueOf) {
  const select = h("select", common(context), choices.map(([value, label]) => h("option", { value, selected: value === chosen }, label)));
  select.addEventListener("change", () => context.change(valueOf(select.value)));
  return select;
}

function placeholder(spec) {
  if (typeof spec.default === "string" || typeof spec.default === "number") return String(spec.default);
  return spec.example ? t("such as {example}", { example: spec.example.replace(/^"(.*)"$/, "$1") }) : "";
}

function line(spec, value, context, more = {}) {
  return h("input", {
    type: "text", value: value === undefined || value === null ? "" : readable(String(value)), placeholder: placeholder(spec),
    spellcheck: false, autocomplete: "off", ...common(context), ...more,
  });
}

function text(spec, value, context) {
  if (isLong(spec.key)) return longText(spec, value, context);
  const input = line(spec, value, context);
  if (context.suggestions) input.setAttribute("list", context.suggestions);
  input.addEventListener("input", () => context.change(input.value.trim() || null));
  return input;
}

function longText(spec, value, context) {
  const area = h("textarea", { class: "long", value: value ?? "", rows: 3, placeholder: placeholder(spec), ...common(context) });
  area.addEventListener("input", () => context.change(area.value || null));
  return area;
}

function number(spec, value, context) {
  const { least, most } = spec.kind;
  const input = line(spec, value, context, { inputMode: "decimal", class: "number" });
  if (least !== undefined && most !== undefined) input.title = t("from {least} to {most}", { least, most });
  input.addEventListener("input", () => context.change(numeral(input.value)));
  return input;
}

function numeral(written) {
  const plain = written.trim();
  if (!plain) return null;
  return /^[+-]?\d+(\.\d+)?$/.test(plain) ? Number(plain) : plain;
}

// --- lists and tables --------------------------------------------------------------------------------------------------

function list(spec, value, context) {
  const { item } = spec.kind;
  if (item.choices) return checkboxes(item.choices, value ?? spec.default ?? [], context);
  if (item.name === "record") return records(item, value ?? spec.default ?? [], context);
  if (["list", "table", "any"].includes(item.name)) return json(spec, value, context);
  const area = h("textarea", {
    class: "lines", value: (value ?? spec.default ?? []).join("\n"), rows: 2, spellcheck: false,
    placeholder: spec.example ? t("one per line, such as {example}", { example: firstOf(spec.example) }) : t("one per line"), ...common(context),
  });
  area.addEventListener("input", () => {
    const lines = area.value.split("\n").map((each) => each.trim()).filter(Boolean);
    context.change(lines.map(item.name === "text" ? String : numeral));
  });
  return area;
}

function firstOf(example) {
  return /"([^"]*)"/.exec(example)?.[1] ?? example;
}

function checkboxes(choices, chosen, context) {
  const boxes = choices.map((value) => h("input", { type: "checkbox", value, checked: chosen.includes(value), disabled: context.disabled }));
  const changed = () => context.change(boxes.filter((box) => box.checked).map((box) => box.value));
  boxes.forEach((box) => box.addEventListener("change", changed));
  return h("div", { class: "boxes", role: "group", id: context.id, "aria-labelledby": `${context.id}-label` }, boxes.map((box) => h("label", {}, box, box.value)));
}

/** Rows of names and values that are replaced together. */
function table(spec, value, context) {
  const { item } = spec.kind;
  if (item.name === "secret") return secrets(spec, value ?? {}, context);
  if (!["text", "integer", "number"].includes(item.name)) return json(spec, value, context);
  const rows = h("div", { class: "pairs" });
  const changed = () => {
    const pairs = [...rows.children].map((row) => [...row.querySelectorAll("input")].map((input) => input.value.trim()));
    const known = pairs.filter(([name]) => name).map(([name, written]) => [name, item.name === "text" ? written : numeral(written) ?? ""]);
    context.change(Object.fromEntries(known));
  };
  const pair = (name, inner) => {
    const inputs = [[name, t("Name")], [inner, t("Value")]].map(([each, label]) =>
      h("input", { type: "text", value: readable(String(each)), placeholder: label, "aria-label": label, spellcheck: false, disabled: context.disabled, on: { input: changed } }));
    const row = h("div", { class: "pair" }, inputs, context.disabled ? null : removal(t("Remove this entry"), () => (row.remove(), changed())));
    rows.append(row);
    return inputs[0];
  };
  Object.entries(value ?? {}).forEach(([name, inner]) => pair(name, inner));
  return h("div", { class: "table", role: "group", id: context.id, "aria-labelledby": `${context.id}-label` }, rows,
    context.disabled ? null : button(t("Add an entry"), () => pair("", "").focus(), { class: "worded" }));
}

/** The fields of one record, each with its own label; `change` is called with the whole record. */
function record(spec, value, context) {
  const present = { ...(value ?? {}) };
  const fields = Object.entries(spec.kind.fields).map(([name, kind], index) => {
    const id = `${context.id}-${index}`;
    const change = (inner) => {
      if (inner === null || inner === "" || inner?.length === 0) delete present[name];
      else present[name] = inner;
      context.change(Object.keys(present).length ? { ...present } : null);
    };
    const known = kind.name === "secret" && typeof present[name] === "string" ? { origin: "file", value: present[name] } : {};
    return h("div", { class: "record-field" }, h("label", { for: id, id: `${id}-label` }, words(name)),
      editorOf({ kind, key: "", ...known }, present[name], { id, disabled: context.disabled, change }));
  });
  return h("div", { class: "record", role: "group", id: context.id, "aria-labelledby": `${context.id}-label` }, fields);
}

/** A list of records, of which the first that matches counts: they can be moved. */
function records(item, value, context) {
  const present = value.map((each) => Object.fromEntries(Object.entries(each).filter(([, inner]) => inner !== "" && inner?.length !== 0)));
  const place = h("ol", { class: "records" });
  const changed = () => context.change(present.map((each) => ({ ...each })));
  const show = () => fill(place, present.map((each, at) => h("li", {},
    record({ kind: item }, each, { id: `${context.id}-r${at}`, disabled: context.disabled, change: (inner) => ((present[at] = inner ?? {}), changed()) }),
    context.disabled ? null : h("div", { class: "moves" },
      at ? h("button", { type: "button", class: "quiet", "aria-label": t("Move up"), title: t("Move up"), on: { click: () => move(at) } }, icon("up")) : null,
      removal(t("Remove this rule"), () => (present.splice(at, 1), show(), changed()))))));
  const move = (at) => {
    present.splice(at - 1, 0, ...present.splice(at, 1));
    show();
    changed();
  };
  const add = () => {
    present.push(Object.fromEntries(Object.entries(item.fields).filter(([, kind]) => kind.choices).map(([name, kind]) => [name, kind.choices[0]])));
    show();
    changed();
    place.lastElementChild.querySelector("input").focus();
  };
  show();
  return h("div", { class: "table", role: "group", id: context.id, "aria-labelledby": `${context.id}-label` }, place,
    context.disabled ? null : button(t("Add a rule"), add, { class: "worded" }));
}

/** Values that have no editor of their own, as JSON. */
function json(spec, value, context) {
  const shown = value ?? spec.default;
  const area = h("textarea", { class: "code", rows: 2, spellcheck: false, value: shown === undefined ? "" : JSON.stringify(shown), ...common(context) });
  area.addEventListener("input", () => {
    try {
      context.change(area.value.trim() ? JSON.parse(area.value) : null);
    } catch {
      context.change(area.value);
    }
  });
  return area;
}

function removal(label, act) {
  return h("button", { type: "button", class: "quiet", "aria-label": label, title: label, on: { click: act } }, icon("close"));
}

// --- secrets -----------------------------------------------------------------------------------------------------------

/** A secret: whether there is one, and a field for another. It is sent when the field is left, not while one types. */
function secret(spec, value, context) {
  const place = h("div", { class: "secret" });
  const enter = (focused) => {
    const input = h("input", { type: "password", placeholder: spec.origin ? t("The new value") : t("Not set"), autocomplete: "new-password", spellcheck: false, ...common(context) });
    input.addEventListener("change", () => context.change(input.value.trim() || (spec.origin ? undefined : null)));
    const generate = () => {
      input.type = "text";
      input.value = newToken();
      input.dispatchEvent(new Event("change"));
      input.select();
    };
    const generated = TOKENS.test(spec.key ?? "") && !context.disabled ? button(t("Generate"), generate, { class: "worded" }) : null;
    fill(place, input, generated);
    if (focused) input.focus();
  };
  const isPlain = spec.origin === "file" && spec.value === HIDDEN && context.move;
  const show = (words, isSafe = true) => fill(place, h("span", { class: isSafe ? "kept" : "kept plain" }, icon("lock"), words),
    context.disabled ? null : [
      isSafe ? null : h("button", { type: "button", class: "worded", "aria-describedby": `${context.id}-label`, on: { click: context.move } }, t("Move to a file")),
      h("button", { type: "button", class: "worded", "aria-describedby": `${context.id}-label`, on: { click: () => enter(true) } }, t("Replace")),
      spec.origin === "file" && !context.required ? h("button", { type: "button", class: "worded", on: { click: () => context.change(null) } }, t("Remove")) : null,
    ]);
  if (context.pending) show(t("a new value, not saved yet"));
  else if (isPlain && value !== null) show(t("readable in config.toml"), false);
  else if (spec.origin && value !== null) show(kept(spec.value));
  else enter(false);
  return place;
}

function kept(reference) {
  const text = String(Array.isArray(reference) ? reference[0] : reference ?? "");
  if (text.startsWith("env:")) return t("from the variable {name}", { name: readable(text.slice(4)) });
  if (text.startsWith("credential:")) return t("from the credential {name}", { name: readable(text.slice(11)) });
  return text.startsWith("file:") && !text.startsWith("file:secrets/") ? t("in the file {name}", { name: readable(text.slice(5)) }) : t("set");
}

/** A token as README.md suggests one: 32 random bytes. */
function newToken() {
  const bytes = String.fromCharCode(...crypto.getRandomValues(new Uint8Array(32)));
  return btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** Named secrets, such as headers: each is set, replaced and removed by itself. */
function secrets(spec, value, context) {
  const rows = h("div", { class: "pairs" });
  const row = (name, known) => {
    const inner = { kind: { name: "secret" }, key: "", ...(known === undefined ? {} : { origin: "file", value: known }) };
    const named = h("input", { type: "text", value: readable(name), placeholder: t("Name"), "aria-label": t("Name"), spellcheck: false, disabled: known !== undefined || context.disabled });
    let sent = name;
    let entered = null;
    const send = () => {
      const next = named.value.trim();
      if (sent && sent !== next && known === undefined) context.undoEntry(sent);
      sent = next;
      if (next && entered !== null) context.changeEntry(next, entered);
    };
    named.addEventListener("change", send);
    const place = h("div", { class: "pair" }, named);
    const show = (now) => {
      const editor = editorOf(inner, now, { ...context, id: `${context.id}-${rows.childElementCount}`, required: true, change: (each) => each === undefined ? (context.undoEntry(sent), show()) : ((entered = each), send()) });
      editor.querySelector("input")?.setAttribute("aria-label", t("Value"));
      fill(place, named, editor, context.disabled ? null : removal(t("Remove this entry"), () => {
        if (known === undefined) context.undoEntry(sent);
        else context.changeEntry(name, null);
        place.remove();
      }));
    };
    show(known);
    rows.append(place);
    return named;
  };
  Object.entries(value).forEach(([name, known]) => row(name, known));
  return h("div", { class: "table", role: "group", id: context.id, "aria-labelledby": `${context.id}-label` }, rows,
    context.disabled ? null : button(t("Add an entry"), () => row("", undefined).focus(), { class: "worded" }));
}
