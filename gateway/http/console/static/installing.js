// The service worker, the installation as an application, and notifications while the page is hidden.
import { t } from "./language.js";

const KEY = "exuvia.notifications";
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
  app.socket.on("event", ({ session, event }) => notify(app, session, event));
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

/** Notify of an event of a session, unless somebody looks at the page. The text has nothing of the conversation but its title. */
async function notify(app, session, { kind, seq, outcome }) {
  if (document.visibilityState === "visible" || notifications() !== "on") return;
  if (!(kind in NEWS) || outcome === "cancelled") return;
  const worker = await navigator.serviceWorker.ready;
  const place = new URL("./pictures/icon-192.png", import.meta.url).href;
  await worker.showNotification(app.titleOf(session), {
    body: NEWS[kind], icon: place, badge: place, tag: `${session} ${seq}`, data: `#/chat/${encodeURIComponent(session)}`,
  });
}
