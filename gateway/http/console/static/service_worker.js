// The service worker, served as /service-worker.js: it starts the console without a connection, and shows notifications.
//
// It keeps the page and the files of one version, which are the same for everybody, and nothing else: no request for a
// conversation, a note or a file passes through it. The page comes from the gateway whenever the gateway can be reached, so
// that an update is never hidden, and the paths of the files name their version.

const PLACE = "/console/{digest}/";
const FILES = "{files}".split(" ");

self.addEventListener("install", (event) => event.waitUntil(keep()));
self.addEventListener("activate", (event) => event.waitUntil(takeOver()));

self.addEventListener("fetch", (event) => {
  const { method, mode, url } = event.request;
  const { origin, pathname } = new URL(url);
  if (method !== "GET" || origin !== location.origin) return;
  if (mode === "navigate" && pathname === "/") event.respondWith(page(event.request));
  else if (pathname.startsWith(PLACE)) event.respondWith(file(event.request));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(show(event.notification.data));
});

async function keep() {
  const cache = await caches.open(PLACE);
  await cache.addAll(FILES.map((path) => PLACE + path));
  const response = await fetch("/", { cache: "no-store" });
  if ((await response.clone().text()).includes(PLACE)) await cache.put("/", response);
  await self.skipWaiting();
}

async function takeOver() {
  const others = (await caches.keys()).filter((name) => name !== PLACE);
  await Promise.all(others.map((name) => caches.delete(name)));
  await self.clients.claim();
}

async function page(request) {
  try {
    return await fetch(request);
  } catch (error) {
    const kept = await caches.match("/", { cacheName: PLACE });
    if (kept) return kept;
    throw error;
  }
}

async function file(request) {
  const kept = await caches.match(request, { cacheName: PLACE });
  if (kept) return kept;
  const response = await fetch(request);
  if (response.ok) await (await caches.open(PLACE)).put(request, response.clone());
  return response;
}

/** Show a place of the console in the window that is there, or in a new one. */
async function show(hash) {
  const [window] = await self.clients.matchAll({ type: "window" });
  if (!window) return self.clients.openWindow(`/${hash}`);
  window.postMessage(hash);
  return window.focus();
}
