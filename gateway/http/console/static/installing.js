// The service worker, the installation as an application, and notifications while the page is hidden.
import { t } from "./language.js";

const KEY = "exuvia.notifications";
const SHOWN = "exuvia.notified"; // the tags of the last notifications, which other tabs do not repeat
const KEPT = 50;
const LOOKED_AT = "exuvia.looked-at"; // a lock that each visible tab holds
const WORKER = "/service-worker.js";
const NEWS = {
  turn_ended: t("The answer is ready."),
  approval_asked: t("A tool waits for your approval."),
};

let invitation = null; // the browser's, to install the console

/** Register the service worker once the page is idle, and follow what waits for the person. */
export function install(app) {
  addEventListener("beforeinstallprompt", (event) => {
    event.preventDefault();
    invitation = event;
  });
  if (!navigator.serviceWorker) return; // only on this machine, and over TLS
  const policy = globalThis.trustedTypes?.createPolicy("service-worker", { createScriptURL: () => WORKER });
  const register = () => navigator.serviceWorker.register(policy?.createScriptURL("") ?? WORKER).catch(console.warn);
  if (document.readyState === "complete") register();
  else addEventListener("load", register);
  navigator.serviceWorker.addEventListener("message", ({ data }) => app.go(data));
  app.socket.on("session_update", (update) => notify(app, update));
  holdWhileVisible();
}

/** Hold a lock while this tab is visible, so that hidden ones know that somebody looks at the console. */
function holdWhileVisible() {
  let release = () => {};
  const hold = () => {
    release();
    if (document.visibilityState !== "visible") return;
    const held = new Promise((resolve) => (release = resolve));
    navigator.locks.request(LOOKED_AT, { mode: "shared" }, () => held);
  };
  document.addEventListener("visibilitychange", hold);
  hold();
}

/** Return the function that asks the browser to install the console; null if it cannot now. */
export function installer() {
  return invitation && (() => invitation.prompt().finally(() => (invitation = null)));
}

/** The state of notifications: "on", "off", "denied" by the browser's settings, or "" where there are none. */
export function notifications() {
  if (!navigator.serviceWorker || !globalThis.Notification) return "";
  if (Notification.permission === "denied") return "denied";
  return Notification.permission === "granted" && localStorage.getItem(KEY) ? "on" : "off";
}

/** Switch notifications on or off. The browser asks for its permission, so this must be called by a click. */
export async function notifyFromNow(wanted) {
  if (wanted && (await Notification.requestPermission()) === "granted") localStorage.setItem(KEY, "on");
  else localStorage.removeItem(KEY);
}

/** Notify of an event in any conversation, once in this browser, unless somebody looks at one of its tabs. The text has nothing of the
 * conversation but its name. */
async function notify(app, { session, event: { kind, seq, outcome }, session_id: id }) {
  if (document.visibilityState === "visible" || notifications() !== "on") return;
  if (!(kind in NEWS) || outcome === "cancelled") return;
  const tag = `${id} ${seq}`;
  await navigator.locks.request(SHOWN, async () => {
    const { held } = await navigator.locks.query();
    const known = JSON.parse(localStorage.getItem(SHOWN) ?? "[]");
    if (known.includes(tag) || held.some(({ name }) => name === LOOKED_AT)) return;
    localStorage.setItem(SHOWN, JSON.stringify([...known, tag].slice(-KEPT)));
    const worker = await navigator.serviceWorker.ready;
    const icon = new URL("./pictures/icon-192.png", import.meta.url).href;
    const data = `#/chat/${encodeURIComponent(session)}`;
    await worker.showNotification(app.conversations.nameOf(session), { body: NEWS[kind], icon, badge: icon, tag, data });
  });
}
