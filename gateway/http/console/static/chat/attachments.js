// Files of a message or a tool's result: pictures are shown, others can be downloaded.
import { h, readable } from "../elements.js";
import { icon } from "../icons.js";

const PICTURES = /^image\/(png|jpeg|gif|webp)$/;

/** Return the elements of some attachments; none for none. */
export function files(attachments) {
  if (!attachments?.length) return [];
  const shown = attachments.map((file) => {
    const name = readable(file.name || file.media || "file");
    if (!file.sha256) return h("span", { class: "file" }, icon("attach"), name); // of a shared conversation without files
    const href = file.href ?? `/attachments/${file.sha256}`;
    if (!PICTURES.test(file.media)) return h("a", { class: "file", href, download: readable(file.name || "") }, icon("attach"), name);
    const size = file.width ? { width: file.width, height: file.height } : {};
    return h("a", { class: "shot", href, download: readable(file.name || "") }, h("img", { src: href, alt: name, loading: "lazy", ...size }));
  });
  return [h("div", { class: "files" }, shown)];
}
