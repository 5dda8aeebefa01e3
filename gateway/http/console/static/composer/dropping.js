// Files that are dropped or pasted anywhere in the page are attached to the message.
import { t } from "../language.js";

/** Attach what is dropped or pasted; returns a function that stops. `page` shows that files can be dropped. */
export function receiveFiles(page, composer) {
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  let inside = 0; // elements under the pointer that were entered and not left
  const show = (over) => page.classList.toggle("over", over);
  const heard = {
    dragenter(event) {
      if (!hasFiles(event)) return;
      inside += 1;
      show(true);
    },
    dragleave(event) {
      if (!hasFiles(event)) return;
      inside = Math.max(0, inside - 1);
      show(inside > 0);
    },
    dragover(event) {
      if (!hasFiles(event)) return;
      event.preventDefault();
      show(true);
    },
    drop(event) {
      inside = 0;
      show(false);
      if (!hasFiles(event)) return;
      event.preventDefault(); // the browser would leave the page for the file
      composer.attach([...event.dataTransfer.files]);
    },
    paste(event) {
      const files = [...(event.clipboardData?.files ?? [])];
      if (!files.length || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      composer.attach(files);
    },
  };
  page.dataset.drop = t("Drop files to attach them to the message");
  for (const [type, listener] of Object.entries(heard)) document.addEventListener(type, listener);
  return () => Object.entries(heard).forEach(([type, listener]) => document.removeEventListener(type, listener));
}
