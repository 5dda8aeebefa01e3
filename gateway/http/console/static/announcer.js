// The announcer: reads an answer to screen readers while it is written, sentence by sentence.

const END = /[.!?。！？…](?=\s|$)|\n+/g;
const MARKS = /[*_`#>|~]+|!?\[|\]\([^()]*(?:\([^()]*\)[^()]*)?\)/g;
const LONGEST = 400; // characters that are announced at once
const KEPT = 2000; // characters of a sentence that are kept until its end

export class Announcer {
  constructor(say) {
    this.say = say;
    this.id = null;
    this.heardTo = 0;
    this.rest = ""; // received and not announced yet
  }

  /** Handle an entry that grew by a piece or is complete. Only the piece is scanned, not the whole text. */
  feed(entry, piece = "") {
    if (this.id !== entry.id) {
      if (!entry.live) return; // it was complete when it arrived: screen readers read it in the list
      this.id = entry.id;
      this.heardTo = 0;
      this.rest = "";
    }
    const { length } = entry.text;
    const text = this.rest + (length === this.heardTo + piece.length ? piece : entry.text.slice(this.heardTo));
    this.heardTo = length;
    const end = entry.live ? endOf(text, this.rest.length - 1) : text.length;
    const words = text.slice(0, end).replace(MARKS, " ").replace(/\s+/g, " ").trim();
    if (words) this.say(words.slice(0, LONGEST));
    this.rest = text.slice(end);
    if (this.rest.length > KEPT) this.rest = this.rest.slice(0, KEPT) + this.rest.at(-1);
    if (!entry.live) this.id = null;
  }
}

/** Return the end of the last complete sentence; the last character may still continue ("3." of "3.5"). The text before
 * `from` was scanned already. */
function endOf(text, from) {
  let end = 0;
  END.lastIndex = Math.max(0, from);
  for (const found of text.matchAll(END)) {
    const behind = found.index + found[0].length;
    if (behind < text.length || found[0].startsWith("\n")) end = behind;
  }
  return end;
}
