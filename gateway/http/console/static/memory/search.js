// Search of the memory while typing, with the parts of each score.

import { fill, h, placeOf, readable } from "../elements.js";
import { sentence } from "../format.js";
import { t, tn } from "../language.js";

/** Milliseconds after the last key before the search starts. */
const PAUSE = 180;

/** Characters of a hit that are shown. */
const LONGEST = 600;

let last = ""; // the last query, which is there again when the person comes back from a hit

export class SearchView {
  /** `nameOf(key)` returns the name of a conversation. */
  constructor(api, agent, nameOf) {
    this.api = api;
    this.agent = agent;
    this.nameOf = nameOf;
    this.input = h("input", {
      type: "search",
      id: "memory-query",
      placeholder: t("What did we decide about …"),
      autocomplete: "off",
      value: last,
      on: { input: () => this.schedule() },
    });
    this.status = h("p", { class: "status", role: "status" });
    this.hits = h("ol", { class: "hits" });
    this.element = h(
      "section",
      { class: "memory-search" },
      h("form", { role: "search", on: { submit: (event) => (event.preventDefault(), this.search()) } },
        h("label", { for: "memory-query" }, t("Search notes and conversations")),
        this.input,
      ),
      this.status,
      this.hits,
    );
  }

  shown() {
    this.input.focus();
    if (this.input.value && !this.hits.childElementCount) this.search();
  }

  schedule() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.search(), PAUSE);
  }

  /** Search; an answer to an older query is dropped. */
  async search() {
    clearTimeout(this.timer);
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    const query = (last = this.input.value.trim());
    try {
      const found = await this.api.get(`/api/memory?${new URLSearchParams({ q: query })}`, { signal: asking.signal });
      if (this.asking === asking) this.show(query, found);
    } catch (error) {
      if (this.asking === asking && error.name !== "AbortError") this.status.textContent = sentence(error);
    }
  }

  show(query, found) {
    const what = query ? (found.hits.length ? tn(found.hits.length, "one result", "{count} results") : "") : "";
    this.status.textContent = [what, ...found.remarks].filter(Boolean).join(" · ");
    const best = Math.max(0, ...found.hits.map((hit) => hit.fused));
    fill(this.hits, found.hits.map((hit) => this.hit(hit, best, query)));
  }

  hit(hit, best, query) {
    const href = placeOf(hit.citation, { query, of: this.agent });
    const said = hit.source === "sessions"; // in a conversation, which is called by its name
    const name = said ? this.nameOf(hit.headings[0]) : hit.citation;
    const place = h(href ? "a" : "span", { class: "citation", href, title: said ? hit.citation : null }, readable(name));
    const under = said ? hit.day : hit.headings.map(readable).join(" › ");
    return h(
      "li",
      { class: "hit" },
      h("h2", {}, place, under ? h("span", { class: "headings" }, under) : null),
      h("p", { class: "text", tabIndex: 0 }, marked(hit)),
      score(hit, best),
    );
  }
}

/** The text of a hit, at most LONGEST characters around its first match, with the words of the query marked. */
function marked({ text, matches }) {
  const letters = [...text];
  const begin = letters.length > LONGEST && matches.length && matches[0][0] > LONGEST / 2 ? matches[0][0] - LONGEST / 4 : 0;
  const end = Math.min(letters.length, begin + LONGEST);
  const pieces = [begin ? "…" : ""];
  let at = begin;
  for (const [first, last] of matches) {
    if (first < begin || last > end) continue;
    pieces.push(letters.slice(at, first).join(""), h("mark", {}, letters.slice(first, last).join("")));
    at = last;
  }
  return [...pieces, letters.slice(at, end).join(""), end < letters.length ? "…" : ""];
}

/** The score as a bar of its parts, and as a table. */
function score(hit, best) {
  const parts = hit.parts.filter((part) => part.worth > 0);
  const bar = h("span", { class: "score-bar", "aria-hidden": "true" });
  for (const part of parts) {
    const piece = h("span", { class: `piece ${kind(part.name)}` });
    piece.style.inlineSize = `${best ? (100 * part.worth * hit.decay) / best : 0}%`; // by CSSOM, which the policy allows
    bar.append(piece);
  }
  const faded = h("span", { class: "piece faded" });
  faded.style.inlineSize = `${best ? (100 * hit.fused * (1 - hit.decay)) / best : 0}%`;
  bar.append(faded);
  return h(
    "details",
    { class: "score" },
    h("summary", {}, bar, h("span", { class: "sum" }, hit.score.toFixed(3)), h("span", { class: "unseen" }, t("Score details"))),
    sums(hit, parts),
  );
}

function sums(hit, parts) {
  const found = {
    meaning: hit.cosine == null ? "" : `cosine ${hit.cosine.toFixed(3)}`,
    words: hit.keywords ? `bm25 ${hit.keywords.toPrecision(3)}` : "",
  };
  const row = (part) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("span", { class: `swatch ${kind(part.name)}` }), part.name),
      h("td", {}, part.value.toFixed(3)),
      h("td", {}, `× ${part.weight.toFixed(3)}`),
      h("td", {}, part.worth.toFixed(4)),
      h("td", { class: "from" }, found[part.name] ?? ""),
    );
  return h(
    "table",
    { class: "sums" },
    h("thead", {}, h("tr", {}, [t("Part"), t("Raw"), t("Weight"), t("Contribution"), ""].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, parts.map(row)),
    h(
      "tfoot",
      {},
      h("tr", {}, h("th", { scope: "row", colSpan: 3 }, t("Total")), h("td", {}, hit.fused.toFixed(4)), h("td", {})),
      h(
        "tr",
        {},
        h("th", { scope: "row", colSpan: 3 }, hit.day ? t("Age factor ({day})", { day: hit.day }) : t("Age factor")),
        h("td", {}, `× ${hit.decay.toFixed(3)}`),
        h("td", {}),
      ),
      h("tr", { class: "result" }, h("th", { scope: "row", colSpan: 3 }, t("Score")), h("td", {}, hit.score.toFixed(4)), h("td", {})),
    ),
  );
}

const KINDS = ["meaning", "words"];

/** The class of a part: the two main ones have their own colours. */
function kind(name) {
  return KINDS.includes(name) ? name : "other";
}
