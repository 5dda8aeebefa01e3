// Signing in, with the token or with the one-time link that `exuvia run` prints.
import { button } from "./controls.js";
import { h } from "./elements.js";
import { t, th } from "./language.js";

const RETRY = 5000; // milliseconds

/** Return the secret of a one-time link and remove it from the URL and history; empty if there is none. */
export function linkInAddress() {
  const found = /^#link=([\w.-]+)$/.exec(location.hash);
  if (!found) return "";
  history.replaceState(null, "", location.pathname);
  return found[1];
}

/** Show the form; `reason` is a sentence above it. Resolves once somebody is signed in, by the form or by a link that
 * is put into the address meanwhile. */
export function signIn(place, api, reason = "") {
  return new Promise((resolve) => {
    const token = h("input", {
      id: "token", type: "password", name: "password", autocomplete: "current-password", required: true, spellcheck: false,
      autocapitalize: "none", "aria-describedby": "token-place sign-in-fault",
    });
    const fault = h("p", { id: "sign-in-fault", class: "fault", role: "alert" }, reason);
    const button = h("button", { class: "primary", type: "submit" }, t("Sign in"));
    const form = h(
      "form",
      { class: "card sign-in", method: "post", action: "/api/sign-in", on: { submit } },
      brand(),
      h("input", { type: "text", name: "username", autocomplete: "username", value: location.host, hidden: true }),
      h("label", { for: "token" }, t("Token")),
      token,
      h("p", { id: "token-place", class: "faint" }, th("The token is in the file {file} in the gateway’s home, by default {path}. Or open the link that {command} prints.",
        { file: h("code", {}, "token"), path: h("code", {}, "~/.exuvia/token"), command: h("code", {}, "exuvia run") })),
      fault,
      button,
    );
    place.replaceChildren(h("main", { class: "lone" }, form));
    token.focus();

    addEventListener("hashchange", linked);

    function submit(event) {
      event.preventDefault();
      enter({ token: token.value });
    }

    function linked() {
      const link = linkInAddress();
      if (link) enter({ link });
    }

    async function enter(shown) {
      button.disabled = true;
      fault.textContent = "";
      try {
        resolve(await api.post("/api/sign-in", shown));
        removeEventListener("hashchange", linked);
      } catch (error) {
        fault.textContent = error.status ? error.message : t("The gateway is unreachable.");
        token.select();
      } finally {
        button.disabled = false;
      }
    }
  });
}

/** Show that the gateway cannot be reached. The page is loaded again once it can. */
export function offline(place) {
  const again = () => fetch("/api/session", { cache: "no-store" }).then(() => location.reload(), () => {});
  addEventListener("online", again);
  setInterval(again, RETRY);
  place.replaceChildren(h("main", { class: "lone" }, h("div", { class: "card sign-in" },
    brand(),
    h("p", { role: "status" }, t("The gateway cannot be reached. The page opens as soon as it can; your drafts are kept in this browser.")),
    button(t("Try again"), again, { class: "primary" }))));
}

function brand() {
  return h("h1", {}, h("img", { src: new URL("./pictures/icon.svg", import.meta.url).href, alt: "", width: 32, height: 32 }), "Exuvia");
}
