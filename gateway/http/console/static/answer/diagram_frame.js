// The document in which Mermaid draws. It is sandboxed: it has an origin of its own, connects to nothing and loads nothing but these
// two scripts. It receives `{id, source, theme}` from the page and returns `{id, svg}` or `{id, problem}`.

const LONGEST = 20_000; // characters of a source
const MOST_EDGES = 300;
const LARGEST = 2_000_000; // characters of a picture
const BOX = /^-?[\d.]+ -?[\d.]+ ([\d.]+) ([\d.]+)$/;

// A diagram cannot change what limits it, nor its colours: those are the page's.
const FIXED = ["secure", "securityLevel", "startOnLoad", "maxTextSize", "maxEdges", "suppressErrorRendering", "htmlLabels", "theme",
  "themeVariables", "themeCSS", "fontFamily", "altFontFamily", "darkMode", "dompurifyConfig", "look", "layout"];

window.addEventListener("message", async ({ data, source }) => {
  if (source !== window.parent) return;
  const { id } = data;
  try {
    source.postMessage({ id, svg: await drawn(data) }, "*");
  } catch (error) {
    source.postMessage({ id, problem: String(error?.message ?? error) }, "*");
  }
});

async function drawn({ id, source, theme }) {
  if (source.length > LONGEST) throw new Error("The diagram is too long.");
  const labels = { htmlLabels: false, useMaxWidth: false };
  mermaid.initialize({ startOnLoad: false, securityLevel: "strict", suppressErrorRendering: true, maxTextSize: LONGEST, maxEdges: MOST_EDGES,
    secure: FIXED, htmlLabels: false, flowchart: labels, class: labels, state: labels, ...theme });
  const { svg } = await mermaid.render(`diagram-${id}`, source);
  const place = document.createElement("div");
  place.innerHTML = svg;
  const element = place.querySelector("svg");
  const [, width, height] = BOX.exec(element.getAttribute("viewBox") ?? "") ?? [];
  if (width) {
    element.setAttribute("width", width);
    element.setAttribute("height", height);
  }
  element.style.maxWidth = "";
  const text = new XMLSerializer().serializeToString(element);
  if (text.length > LARGEST) throw new Error("The diagram is too large.");
  return text;
}

window.parent.postMessage({ ready: true }, "*");
