// Which answers were shown in this browser. What was there at the first visit counts as shown.

import { usedAt } from "./conversations.js";

const KEPT = 3000; // conversations that are remembered

export class Seen {
  constructor(person) {
    this.place = `exuvia.seen.${person}`;
    const stored = read(this.place);
    this.since = stored?.since ?? ""; // the time of the newest event at the first visit
    this.marks = new Map(stored?.marks); // by key: [the session's id, the seq of the last answer that was shown]
  }

  /** Note what is there at the first visit. */
  begin(rows) {
    if (this.since) return;
    this.since = rows.reduce((newest, row) => (row.at > newest ? row.at : newest), "-");
    this.keep();
  }

  unread(row) {
    if (!row.replied || usedAt(row) <= this.since) return false;
    const [session, seq] = this.marks.get(row.session) ?? [];
    return session !== row.session_id || row.replied > seq;
  }

  /** The answers of a conversation are shown. */
  mark(row) {
    if (!this.unread(row)) return;
    this.marks.delete(row.session);
    this.marks.set(row.session, [row.session_id, row.replied]);
    if (this.marks.size > KEPT) this.marks.delete(this.marks.keys().next().value);
    this.keep();
  }

  forget(key) {
    if (this.marks.delete(key)) this.keep();
  }

  keep() {
    try {
      localStorage.setItem(this.place, JSON.stringify({ since: this.since, marks: [...this.marks] }));
    } catch {
      // The storage is full: the marks are right until the next reload.
    }
  }
}

function read(place) {
  try {
    return JSON.parse(localStorage.getItem(place));
  } catch {
    return null;
  }
}
