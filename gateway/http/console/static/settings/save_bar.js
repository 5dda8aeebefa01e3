// The bar below the settings: how much is changed and what is wrong with it, and the buttons that undo or save it all.

import { button } from "../controls.js";
import { fill, h, readable } from "../elements.js";
import { sentence } from "../format.js";
import { t, tn } from "../language.js";

const CONFLICT = "conflict";
const CONFIRM = "confirm";

export class SaveBar {
  constructor(app, draft, again) {
    this.app = app;
    this.draft = draft;
    this.again = again;
    this.busy = false;
    this.count = h("strong", {});
    this.rest = h("span", { class: "rest" });
    this.list = h("ul", { class: "changes" });
    this.more = h("details", {}, h("summary", {}, t("Review")), this.list);
    this.discard = button(t("Discard"), () => this.undoAll());
    this.save = button(t("Save"), () => this.write(false), { class: "primary" });
    this.said = h("div", { class: "said", role: "status" });
    this.work = h("div", { class: "work" }, h("div", { class: "what" }, this.count, this.rest, this.more), h("div", { class: "choices" }, this.discard, this.save));
    this.element = h("div", { class: "save-bar", hidden: true }, this.said, this.work);
  }

  update() {
    const { changes, checked, report } = this.draft;
    const size = changes.size;
    this.work.hidden = !size;
    this.element.hidden = !size && !this.said.childElementCount;
    if (!size) return;
    const loose = checked.faults.filter(({ key }) => !key).map((fault) => fault.sentence);
    this.count.textContent = tn(size, "One unsaved change", "{count} unsaved changes");
    const lines = [
      checked.faults.length ? h("span", { class: "wrong" }, tn(checked.faults.length, "one fault", "{count} faults")) : null,
      checked.restart.length ? h("span", {}, t("needs a restart")) : null,
    ];
    fill(this.rest, lines);
    fill(this.list,
      [...changes].map(([key, value]) => h("li", {}, h("code", {}, key), " ", this.described(key, value))),
      loose.map((fault) => h("li", { class: "wrong" }, fault)),
      checked.asks.map((each) => h("li", { class: "asks" }, each)),
      checked.warnings.map((each) => h("li", {}, each)));
    if (loose.length) this.more.open = true;
    this.save.disabled = this.busy || checked.faults.length > 0 || Boolean(report?.locked);
  }

  described(key, value) {
    const known = this.draft.present.get(key);
    if (value === null) return known ? h("span", {}, t("the default")) : h("span", {}, t("removed"));
    const kind = known?.kind.name;
    const isShown = ["boolean", "integer", "number", "choice", "duration", "list"].includes(kind);
    const text = isShown ? readable(JSON.stringify(value)) : "";
    return isShown && text.length <= 60 ? [known.value === undefined ? "" : [h("s", {}, readable(JSON.stringify(known.value)).slice(0, 60)), " → "], text] : h("span", {}, t("a new value"));
  }

  undoAll() {
    this.draft.undoAll();
    fill(this.said);
    this.again();
  }

  async write(confirmed) {
    this.busy = true;
    fill(this.said);
    this.update();
    try {
      const said = await this.draft.save(confirmed);
      this.tell(told(said), Boolean(said.fault));
      this.again();
    } catch (error) {
      if (error.code === CONFIRM) await this.confirm(error.body.asks);
      else if (error.code === CONFLICT) this.conflict(error.message);
      else this.tell(sentence(error), true);
    }
    this.busy = false;
    this.update();
  }

  tell(text, isWrong, ...actions) {
    fill(this.said, h("p", { class: isWrong ? "wrong" : "well" }, text), actions);
    this.update();
  }

  /** The file is not the one that was loaded: its values are loaded, and the changes stay. */
  conflict(text) {
    const load = button(t("Load its values and keep my changes"), async () => {
      await this.draft.load();
      fill(this.said);
      this.again();
    });
    this.tell(text, true, load);
  }

  /** Ask before a change that may lock the owner out. */
  confirm(asks) {
    const dialog = h("dialog", { "aria-labelledby": "settings-ask" }, h("form", { method: "dialog" },
      h("h2", { id: "settings-ask" }, t("Save these changes?")),
      h("ul", { class: "settings-asks" }, asks.map((each) => h("li", {}, each))),
      h("div", { class: "choices" }, h("button", { type: "submit", value: "", autofocus: true }, t("Cancel")), h("button", { type: "submit", value: "yes", class: "primary" }, t("Save anyway")))));
    document.body.append(dialog);
    dialog.showModal();
    return new Promise((resolve) => {
      dialog.addEventListener("close", async () => {
        dialog.remove();
        if (dialog.returnValue === "yes") await this.write(true);
        resolve();
      });
    });
  }
}

/** What the reload said. */
function told({ fault, waiting, reloaded }) {
  if (!reloaded) return t("Saved. The gateway has not finished reloading it yet.");
  if (fault) return t("Saved, but the gateway keeps an earlier configuration: {reason}", { reason: fault });
  if (waiting.length) return t("Saved. These keys wait for a restart: {keys}.", { keys: waiting.join(", ") });
  return t("Saved, and in force from the next turn on.");
}
