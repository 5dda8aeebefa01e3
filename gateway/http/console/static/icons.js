// Icons, drawn as lines in the colour of the text beside them.
import { svg } from "./elements.js";

const LINES = {
  archive: ["M2.5 3.5h11v2.5h-11z", "M3.5 6v6.5h9V6", "M6.5 8.5h3"],
  attach: ["M12.5 7.5L7.8 12.2a2.6 2.6 0 0 1-3.7-3.7l5.2-5.2a1.75 1.75 0 0 1 2.5 2.5L6.9 10.7a.9.9 0 0 1-1.3-1.3L9.8 5.2"],
  chat: ["M3 4.5A1.5 1.5 0 0 1 4.5 3h7A1.5 1.5 0 0 1 13 4.5v5a1.5 1.5 0 0 1-1.5 1.5H8l-3 2.5V11h-.5A1.5 1.5 0 0 1 3 9.5z"],
  close: ["M4 4l8 8M12 4l-8 8"],
  context: ["M3 4h10M3 8h10M3 12h6"],
  copy: ["M6 6h6.5v6.5H6z", "M10 6V3.5H3.5V10H6"],
  bin: ["M3 4.5h10M6.5 4.5V3h3v1.5M4.2 4.5l.6 8.5h6.4l.6-8.5", "M6.8 7v3.7M9.2 7v3.7"],
  dark: ["M12.8 9.6A5.2 5.2 0 0 1 6.4 3.2a5.2 5.2 0 1 0 6.4 6.4z"],
  down: ["M4 6.5l4 4 4-4"],
  download: ["M8 2.5v7.5M4.8 7L8 10.2 11.2 7M3 13h10"],
  edit: ["M10.5 3.5l2 2-6.8 6.8-2.7.7.7-2.7z"],
  fork: ["M5 3v10M5 9.5c4 0 6-1.5 6-4.5", "M11 5V3"],
  health: ["M2 8.5h3l1.5-4 3 7 1.5-3h3"],
  light: ["M8 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6z", "M8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9"],
  memory: ["M4 2.5h6.5L12.5 4.5v9H4z", "M6 6h4M6 8.5h4M6 11h2.5"],
  menu: ["M2.5 4.5h11M2.5 8h11M2.5 11.5h11"],
  more: ["M3.6 8h.8M7.6 8h.8M11.6 8h.8"],
  out: ["M9.5 3H4v10h5.5", "M7 8h6.5M11.2 5.5L13.7 8l-2.5 2.5"],
  pin: ["M6 2.5h4l-.5 4 2 2.5h-7l2-2.5zM8 9v4.5"],
  plus: ["M8 3.5v9M3.5 8h9"],
  preferences: ["M2.5 4.5h6M12 4.5h1.5M2.5 11.5h1.5M7.5 11.5h6", "M10.2 2.7a1.8 1.8 0 1 1 0 3.6 1.8 1.8 0 0 1 0-3.6zM5.8 9.7a1.8 1.8 0 1 1 0 3.6 1.8 1.8 0 0 1 0-3.6z"],
  again: ["M12.5 8a4.5 4.5 0 1 1-1.4-3.25", "M12.7 2.7v2.6h-2.6"],
  screen: ["M2.5 3.5h11v7h-11z", "M6 13h4M8 10.5V13"],
  search: ["M7 3a4 4 0 1 1 0 8 4 4 0 0 1 0-8z", "M10 10l3.5 3.5"],
  send: ["M8 13V3.5M4 7.3L8 3.3l4 4"],
  share: ["M8 9.5V2.5M5.2 5L8 2.2 10.8 5", "M5 7.5H3.5v6h9v-6H11"],
  stop: ["M4.5 4.5h7v7h-7z"],
  tool: ["M9.8 6.2l3-3a3.2 3.2 0 0 1-4.3 4.1l-4.4 4.4a1.2 1.2 0 0 0 1.7 1.7L10.2 9a3.2 3.2 0 0 0 4-4.2"],
  tick: ["M3.5 8.5l3 3 6-7"],
};

/** The icon of this name, hidden from screen readers: a button without a text needs an `aria-label`. */
export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, ...LINES[name].map((d) => svg("path", { d })));
}
