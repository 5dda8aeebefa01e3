// Light and dark theme: that of the system, or the chosen one.

const KEY = "exuvia.theme";
export const CHOICES = ["system", "light", "dark"];

/** The theme chosen in this browser. */
export function chosen() {
  const kept = localStorage.getItem(KEY);
  return CHOICES.includes(kept) ? kept : "system";
}

/** Choose a theme and apply it. */
export function choose(choice) {
  localStorage.setItem(KEY, choice);
  apply();
}

/** Apply the chosen theme. */
export function apply() {
  const choice = chosen();
  if (choice === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
}
