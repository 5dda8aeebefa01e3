// The dialogs of a conversation's menu: deleting and exporting.
import { fill, h, readable } from "../elements.js";
import { sentence, size } from "../format.js";
import { icon } from "../icons.js";
import { t, tn } from "../language.js";

const OF_A_VERSION = "It was forked from"; // such a sentence says nothing if all versions are deleted

/** Open a dialog with a heading; `content` are elements. It is removed once it is closed. */
function open(title, ...content) {
  const dialog = h("dialog", { class: "about", "aria-label": title, on: { close: () => dialog.remove() } }, h("h2", {}, title), content);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

function closing(label) {
  return h("button", { type: "button", on: { click: ({ target }) => target.closest("dialog").close() } }, label);
}

/** Ask whether a conversation shall be deleted with all its versions, delete it, and say what remains. */
export function deletion(app, { name, rows }) {
  const facts = h("input", { type: "checkbox" });
  const fault = h("p", { class: "fault small", role: "alert" });
  const cancel = closing(t("Cancel"));
  const sure = h("button", { class: "danger", type: "submit" }, t("Delete"));
  const form = h("form", { on: { submit: act } },
    h("p", {}, t("Its messages, answers and files are removed from the gateway for good.")),
    rows.length > 1 ? h("p", {}, tn(rows.length, "Its only version is deleted.", "All of its {count} versions are deleted.")) : null,
    h("label", { class: "check" }, facts, t("Forget the facts that came only from it, too")), fault,
    h("div", { class: "choices" }, cancel, sure));
  const dialog = open(t("Delete “{name}”?", { name: readable(name) }), form);
  cancel.focus();

  async function act(event) {
    event.preventDefault();
    sure.disabled = true;
    const removed = { bytes: 0, facts: 0 };
    const remains = new Set();
    try {
      for (const row of rows.toReversed()) { // a fork before what it was forked from
        const frame = await app.socket.ask({ type: "delete", session: row.session, facts: facts.checked });
        for (const what of Object.keys(removed)) removed[what] += frame.removed[what];
        for (const each of frame.remains) if (row === rows[0] || !each.startsWith(OF_A_VERSION)) remains.add(each);
      }
      report(removed, [...remains]);
    } catch (error) {
      fault.textContent = sentence(error);
      sure.disabled = false;
    }
  }

  function report({ bytes, facts: forgotten }, remains) {
    const done = closing(t("Close"));
    const facts = forgotten ? ` ${tn(forgotten, "One fact was forgotten.", "{count} facts were forgotten.")}` : "";
    dialog.setAttribute("aria-label", t("Deleted"));
    fill(dialog, h("h2", {}, t("Deleted")),
      h("p", { role: "status" }, t("“{name}” was deleted ({size}).", { name: readable(name), size: size(bytes) }), facts),
      remains.length ? [h("p", { class: "small faint" }, t("What remains:")), h("ul", { class: "small" }, remains.map((each) => h("li", {}, each)))] : null,
      h("div", { class: "choices" }, done));
    done.focus();
  }
}

/** Offer the version of a conversation that is shown as a file. */
export function exporting({ name, shown }) {
  const file = (format, title, words) => h("li", {},
    h("a", { href: `/api/conversations/${encodeURIComponent(shown.session)}/export?format=${format}`, download: "", on: { click: () => dialog.close() } },
      icon("download"), h("span", {}, h("b", {}, title), h("span", { class: "faint small" }, words))));
  const dialog = open(t("Export “{name}”", { name: readable(name) }), h("ul", { class: "formats" },
    file("markdown", "Markdown", t("The messages and answers, to read")),
    file("json", "JSON", t("The messages, answers and tools, for programs")),
    file("jsonl", "JSONL", t("The log itself, each event a line"))),
  h("div", { class: "choices" }, closing(t("Cancel"))));
}
