// Light and dark: as the system says, unless somebody chose.

const KEY = "exuvia.theme";
export const CHOICES = ["system", "light", "dark"];

/** What was chosen in this browser. */
export function chosen() {
  const kept = localStorage.getItem(KEY);
  return CHOICES.includes(kept) ? kept : "system";
}

/** Choose, and have it shown. */
export function choose(choice) {
  localStorage.setItem(KEY, choice);
  apply();
}

/** Show what was chosen. */
export function apply() {
  const choice = chosen();
  if (choice === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
}
