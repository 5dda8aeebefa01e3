// Requests to the gateway over HTTP. The browser adds the cookie by itself.
import { t } from "./language.js";

/** An error response: the HTTP `status`, its `code`, a sentence as `message`, and the whole `body`. */
export class Refused extends Error {
  constructor(status, body, retryAfter) {
    super(body.message ?? body.error?.message ?? t("The gateway answered with status {status}.", { status }));
    this.status = status;
    this.code = body.code ?? "";
    this.body = body;
    this.retryAfter = retryAfter;
  }
}

/** The HTTP client of one console; `expelled` is called when the browser is no longer signed in. */
export class Api {
  constructor(expelled) {
    this.expelled = expelled;
  }

  get(path, { signal } = {}) {
    return this.call("GET", path, { signal });
  }

  post(path, value = {}) {
    return this.call("POST", path, { body: JSON.stringify(value), type: "application/json" });
  }

  /** Post a value and yield the events of the answer's stream. Throws what `call` throws. */
  async *stream(path, value, signal) {
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(path, { method: "POST", body: JSON.stringify(value), headers, signal, cache: "no-store" });
    if (!response.ok) await this.refuse(response, path, await response.json().catch(() => ({})));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      const events = (rest + piece.value).split("\n\n");
      rest = events.pop();
      for (const event of events) if (event.startsWith("data: ")) yield JSON.parse(event.slice(6));
    }
  }

  put(path, value, headers = {}) {
    return this.call("PUT", path, { body: JSON.stringify(value), type: "application/json", headers });
  }

  remove(path) {
    return this.call("DELETE", path);
  }

  /** Upload a file; resolves to `{sha256, media, bytes, name}` once it is durable. */
  upload(file) {
    const name = encodeURIComponent(file.name ?? "");
    return this.call("POST", `/attachments?name=${name}`, { body: file, type: file.type || "application/octet-stream" });
  }

  /** Transcribe a recording; resolves to `{text}`. */
  transcribe(recording, signal) {
    const form = new FormData();
    form.append("model", "exuvia");
    form.append("file", recording);
    return this.call("POST", "/v1/audio/transcriptions", { body: form, signal });
  }

  /** Send a request; resolves to the response's JSON. Throws Refused, or TypeError if the gateway is unreachable. */
  async call(method, path, { body, type, headers = {}, signal } = {}) {
    const sent = type ? { ...headers, "Content-Type": type } : headers;
    const response = await fetch(path, { method, body, headers: sent, signal, cache: "no-store" });
    const value = await response.json().catch(() => ({}));
    if (response.ok) return value;
    return this.refuse(response, path, value);
  }

  refuse(response, path, value) {
    if (response.status === 401 && path !== "/api/sign-in") this.expelled();
    throw new Refused(response.status, value, Number(response.headers.get("Retry-After")) || undefined);
  }
}
