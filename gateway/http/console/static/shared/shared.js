// The page of a read-only link to a conversation, `/shared/SECRET`: its messages and answers, for everybody who has the link.
import { Timeline } from "../chat/timeline.js";
import { Transcript } from "../chat/transcript.js";
import { h, readable } from "../elements.js";
import { t } from "../language.js";
import * as theme from "../theme.js";

const AGAIN = 5000; // milliseconds between requests for what is new in a link that is live
const NO_ACTIONS = {};

/** What the timeline draws: a conversation that nobody writes in. */
class SharedConversation {
  constructor(secret) {
    this.path = `/api/shared/${encodeURIComponent(secret)}`;
    this.transcripts = new Map(); // by session, oldest first
    this.questions = [];
    this.more = this.running = this.live = false;
    this.title = "";
    this.place = {}; // of the next request
  }

  entries() {
    return [...this.transcripts.values()].flatMap((transcript) => transcript.sorted());
  }

  /** Read on to the end. Throws an Error with a sentence. */
  async read() {
    for (let next = this.place; next; ) {
      const response = await fetch(`${this.path}?${new URLSearchParams(next)}`, { cache: "no-store" }).catch(() => null);
      if (!response) throw new Error(t("The gateway is unreachable."));
      if (response.status === 404) throw new Error(t("This link does not exist, or it does not work any more."));
      if (!response.ok) throw new Error((await response.json()).message);
      const page = await response.json();
      Object.assign(this, { title: page.title, live: page.live });
      const transcript = this.of(page.session_id);
      for (const event of page.events) this.add(transcript, event);
      this.place = { session: page.session_id, after: transcript.last };
      next = page.next;
    }
  }

  of(session) {
    if (!this.transcripts.has(session)) this.transcripts.set(session, new Transcript(session));
    return this.transcripts.get(session);
  }

  /** Add an event. Not all of a turn are shown, so that a message is where it was received, and a reply counts for itself. */
  add(transcript, event) {
    const attachments = event.attachments?.map((file) => ({ ...file, href: `${this.path}/files/${transcript.session}/${event.seq}/${file.sha256}` }));
    if (!transcript.add({ ...event, ...(attachments && { attachments }), reply: event.seq }) || event.kind !== "message_received") return;
    const entry = transcript.entries.get(`${transcript.session}:${event.seq}`);
    Object.assign(entry, { state: "taken", place: event.seq, turn: event.turn });
  }
}

async function show() {
  const conversation = new SharedConversation(location.pathname.split("/").at(-1));
  const title = h("h1", { class: "title" });
  const place = h("main", { class: "shared" }, h("header", { class: "bar" }, title, h("span", { class: "faint small" }, t("Shared, read-only"))));
  document.getElementById("app").replaceChildren(place);
  try {
    await conversation.read();
  } catch (error) {
    place.append(h("p", { class: "lone", role: "alert" }, error.message));
    return;
  }
  const timeline = new Timeline(conversation, NO_ACTIONS);
  timeline.atEnd = false; // it is read from the beginning
  place.append(timeline.element);
  const draw = () => {
    title.textContent = readable(conversation.title) || t("A conversation");
    document.title = `${title.textContent} · Exuvia`;
    timeline.draw();
  };
  draw();
  if (conversation.live) setInterval(() => conversation.read().then(draw, () => {}), AGAIN); // what was read stays
}

theme.apply();
show();
