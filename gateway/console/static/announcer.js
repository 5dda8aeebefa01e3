// The announcer: says an answer while it is written, sentence by sentence, to those who listen instead of reading.

const END = /[.!?。！？…](?=\s|$)|\n+/g;
const MARKS = /[*_`#>|~]+|!?\[|\]\([^()]*(?:\([^()]*\)[^()]*)?\)/g;
const LONGEST = 400; // characters that are said at once

export class Announcer {
  constructor(say) {
    this.say = say;
    this.id = null;
    this.said = 0;
  }

  /** The entry that is written grew, or is whole. */
  heard(entry) {
    if (this.id !== entry.id) {
      if (!entry.live) return; // it was whole when it came: it is read where it stands
      this.id = entry.id;
      this.said = 0;
    }
    const rest = entry.text.slice(this.said);
    const end = entry.live ? endOf(rest) : rest.length;
    this.said += end;
    const words = rest.slice(0, end).replace(MARKS, " ").replace(/\s+/g, " ").trim();
    if (words) this.say(words.slice(0, LONGEST));
    if (!entry.live) this.id = null;
  }
}

/** Behind the last sentence that is whole; the last character may still be continued ("3." of "3.5"). */
function endOf(text) {
  let end = 0;
  for (const found of text.matchAll(END)) {
    const behind = found.index + found[0].length;
    if (behind < text.length || found[0].startsWith("\n")) end = behind;
  }
  return end;
}
