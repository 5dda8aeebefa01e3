// The announcer: says an answer while it is written, sentence by sentence, to those who listen instead of reading.

const END = /[.!?。！？…](?=\s|$)|\n+/g;
const MARKS = /[*_`#>|~]+|!?\[|\]\([^()]*(?:\([^()]*\)[^()]*)?\)/g;
const LONGEST = 400; // characters that are said at once
const KEPT = 2000; // characters of a sentence that are kept until its end comes

export class Announcer {
  constructor(say) {
    this.say = say;
    this.id = null;
    this.heardTo = 0;
    this.rest = ""; // what was heard and not said
  }

  /** The entry that is written grew by a piece, or is whole. Only the piece is looked through, not the text again. */
  heard(entry, piece = "") {
    if (this.id !== entry.id) {
      if (!entry.live) return; // it was whole when it came: it is read where it stands
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

/** Behind the last sentence that is whole; the last character may still be continued ("3." of "3.5"). What stands before
 * `from` was looked through. */
function endOf(text, from) {
  let end = 0;
  END.lastIndex = Math.max(0, from);
  for (const found of text.matchAll(END)) {
    const behind = found.index + found[0].length;
    if (behind < text.length || found[0].startsWith("\n")) end = behind;
  }
  return end;
}
