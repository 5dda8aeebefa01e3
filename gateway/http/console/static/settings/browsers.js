// The browsers in which a person is signed in, each with a button that ends this: at once, also for its open pages.

import { button, guarded } from "../controls.js";
import { fill, h, readable } from "../elements.js";
import { ago, exactly, sentence } from "../format.js";
import { icon } from "../icons.js";
import { t, th } from "../language.js";

const PHONE = /^(Android|iPhone|iPad)$/;

export class SignedInBrowsers {
  constructor(app) {
    this.app = app;
    this.list = h("ul", { class: "sign-ins" });
    this.said = h("p", { class: "settings-fault", role: "alert" });
    this.others = h("div", { class: "sign-ins-others" });
    this.element = h("div", {}, h("section", { class: "settings-table", "aria-label": t("Signed-in browsers") }, this.list), this.said, this.others);
    this.load();
  }

  async load() {
    try {
      const { sign_ins: found } = await this.app.api.get("/api/sign-ins");
      const own = (each) => Number(Boolean(each.current));
      fill(this.list, found.sort((one, other) => own(other) - own(one)).map((each) => this.row(each)));
      fill(this.others, found.some((each) => !each.current)
        ? guarded(t("Sign out all other browsers"), t("Sign out all browsers but this one?"), t("Sign out"), () => this.end(""))
        : h("p", { class: "nothing" }, t("You are signed in nowhere else.")));
    } catch (error) {
      this.said.textContent = sentence(error);
    }
  }

  row({ id, browser, system, at, used, current, open }) {
    const name = nameOf(readable(browser), readable(system));
    const time = (moment) => h("time", { dateTime: moment, title: exactly(moment) }, ago(moment));
    const state = current ? t("this browser") : open ? t("open now") : null;
    const ending = current ? null : button(t("Sign out"), () => this.end(`/${id}`), { class: "worded", "aria-label": t("Sign out {name}", { name }) });
    return h("li", {}, icon(PHONE.test(system) ? "phone" : "screen"),
      h("div", { class: "sign-in-about" },
        h("p", {}, h("span", { class: "name" }, name), state ? h("span", { class: "chip good" }, state) : null),
        h("p", { class: "faint" }, current || open ? th("signed in {at}", { at: time(at) }) : th("last used {used}, signed in {at}", { used: time(used), at: time(at) }))),
      ending);
  }

  async end(path) {
    this.said.textContent = "";
    try {
      await this.app.api.remove(`/api/sign-ins${path}`);
      this.app.announce(t("Signed out."));
    } catch (error) {
      this.said.textContent = sentence(error);
    }
    await this.load();
    (this.others.querySelector("button") ?? this.list.querySelector("button"))?.focus();
  }
}

function nameOf(browser, system) {
  if (!browser) return system ? t("Unknown browser on {system}", { system }) : t("Unknown browser");
  return system ? t("{browser} on {system}", { browser, system }) : browser;
}
