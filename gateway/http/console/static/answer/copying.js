// Copying to the clipboard.
import { h } from "../elements.js";
import { t } from "../language.js";

/** Return a button that copies what `text()` returns; null over plain HTTP from another machine: the browser then has no
 * clipboard. */
export function copyButton(words, text) {
  if (!navigator.clipboard) return null;
  const button = h("button", { class: "quiet worded copy", type: "button" }, words);
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text());
    button.textContent = t("Copied");
    setTimeout(() => (button.textContent = words), 1500);
  });
  return button;
}
