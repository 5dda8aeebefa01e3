// The dialogs of a conversation's menu: deleting, exporting and sharing.
import { fill, h, readable } from "../elements.js";
import { sentence, size, when } from "../format.js";
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

/** Show the read-only links to the version of a conversation that is shown; make and revoke them. */
export function sharing(app, { name, shown }) {
  const path = `/api/conversations/${encodeURIComponent(shown.session)}/shares`;
  const list = h("ul", { class: "links" });
  const fault = h("p", { class: "fault small", role: "alert" });
  const days = h("select", {}, [["7", t("for 7 days")], ["1", t("for one day")], ["30", t("for 30 days")], ["", t("until it is revoked")]].map(
    ([value, words]) => h("option", { value }, words)));
  const live = h("input", { type: "checkbox" });
  const tools = h("input", { type: "checkbox" });
  const files = h("input", { type: "checkbox", checked: true });
  const form = h("form", { on: { submit: (event) => (event.preventDefault(), tried(make)) } },
    h("p", { class: "small faint" }, t("Everybody who has the link can read the messages and answers, without signing in.")),
    h("label", { class: "check" }, t("It works"), days),
    h("label", { class: "check" }, live, t("Show what is written from now on, too")),
    h("label", { class: "check" }, files, t("Show pictures and files, not only their names")),
    h("label", { class: "check" }, tools, t("Show the calls of tools and their results")), fault,
    h("div", { class: "choices" }, closing(t("Close")), h("button", { class: "primary", type: "submit" }, t("Create a link"))));
  open(t("Share “{name}”", { name: readable(name) }), list, form);
  tried(draw);
  days.focus();

  async function tried(act) {
    try {
      await act();
      fault.textContent = "";
    } catch (error) {
      fault.textContent = sentence(error);
    }
  }

  async function make() {
    const expires = days.value ? { expires_days: Number(days.value) } : {};
    const { id, url } = await app.api.post(path, { ...expires, live: live.checked, tools: tools.checked, files: files.checked });
    await draw({ id, url: location.origin + url });
    list.querySelector("input")?.select();
  }

  /** Draw the links. The address of a new one is shown only now: the gateway does not know it any more. */
  async function draw(made = null) {
    const { shares } = await app.api.get(path);
    fill(list, shares.map((share) => item(share, share.id === made?.id ? made.url : "")));
    list.hidden = !shares.length;
  }

  function item({ id, at, expires, live: grows }, url) {
    const revoke = h("button", { type: "button", class: "worded", on: { click: () => tried(() => app.api.remove(`${path}/${id}`).then(() => draw())) } },
      t("Revoke"));
    const until = expires ? t("works until {time}", { time: when(expires) }) : t("works until it is revoked");
    const words = h("span", { class: "small faint" }, t("Link of {time}", { time: when(at) }), `, ${until}`, grows ? `, ${t("live")}` : "");
    const address = url ? h("input", { readOnly: true, value: url, "aria-label": t("The link") }) : null;
    return h("li", {}, address, h("div", {}, words, url && navigator.clipboard ? copying(url) : null, revoke));
  }

  function copying(url) {
    const button = h("button", { type: "button", class: "worded", on: { click: async () => {
      await navigator.clipboard.writeText(url);
      button.textContent = t("Copied");
    } } }, t("Copy"));
    return button;
  }
}
