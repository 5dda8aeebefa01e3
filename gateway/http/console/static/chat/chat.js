// The page of a conversation: its messages, updated as they arrive, and the composer.
//
//   conversation   follows a session key: reads, sends, reconnects
//   transcript     reduces its events to entries; timeline draws them, with tool_calls, question and attachments
//   markdown, verbatim, code, long_text   texts as elements
//   composer/      the input; announcer reads answers to screen readers
//   versions       ‹2/3› where a message was edited or answered again
//   welcome        the content of an empty conversation
import { Announcer } from "../announcer.js";
import { Composer } from "../composer/composer.js";
import { receiveFiles } from "../composer/dropping.js";
import { Settings } from "../composer/settings.js";
import { Conversation, Unsent } from "./conversation.js";
import { h, placeOf } from "../elements.js";
import { icon } from "../icons.js";
import { clearHighlights, formsAt, highlight } from "../matches.js";
import { question } from "../answer/question.js";
import { Timeline } from "./timeline.js";
import { spoken } from "../answer/tool_calls.js";
import { t } from "../language.js";
import { Versions } from "./versions.js";
import { welcome } from "./welcome.js";

const CURRENT = "~"; // in place of a session in an address of the context page
const FRESH = "~"; // in place of a key: a session that has none yet
const LONGEST_KEY = 40;
const carried = new Map(); // by key: the beginning of its transcript, and the place of the pager that chose it

export function mount(element, app, route) {
  return route.key === FRESH ? mountFresh(element, app) : mountKey(element, app, route.key, route.rest);
}

/** A session that is created by its first message, which also determines its key. */
function mountFresh(element, app) {
  app.head(t("New conversation"));
  const settings = new Settings(app);
  const composer = new Composer(app, FRESH, { stop() {}, send, settings });
  element.append(welcome(app, composer), composer.element);
  composer.focus();
  return composing(app, element, composer);

  function send(text, attachments) {
    const key = keyFor(text);
    new Unsent(key).add(app.socket, text, attachments, settings.changed);
    app.go(`#/chat/${encodeURIComponent(key)}`);
  }
}

/** The conversation of a key; `session` and `seq` name a message to scroll to, and `words` are highlighted in it. Of several, as
 * in `5-9`, it is the one with the most of these words. */
function mountKey(element, app, key, [session, seqs = "", words = ""]) {
  const { transcript, place = null } = carried.get(key) ?? {};
  carried.delete(key);
  const conversation = new Conversation(app, key, transcript);
  const composer = new Composer(app, key, {
    send: (text, attachments) => {
      held = null;
      conversation.send(text, attachments);
      timeline.toEnd();
    },
    stop: () => conversation.stop(),
    settings: conversation.choices,
  });
  const timeline = new Timeline(conversation, actsOf(app, conversation, composer));
  const versions = new Versions(app, conversation, (node, seq, from) => {
    const known = node.at ? conversation.current.beginning(node.session_id, seq) : undefined;
    carried.set(node.session, { transcript: known, place: { ...from, seq } });
    app.go(`#/chat/${encodeURIComponent(node.session)}`);
  });
  let held = place; // the pager that was used stays in its place until the person scrolls
  const announcer = new Announcer((sentence) => app.announce(sentence));
  const [seq, last = seq] = seqs.split("-", 2).map(Number);
  let wanted = session ? { session, seq, last } : null;
  let empty = null;
  element.append(timeline.element, timeline.newest, composer.element);
  const leaveComposer = composing(app, element, composer);

  let left = false; // what was asked for before the page was left is answered after it
  const draw = () => {
    if (left) return;
    versions.mark();
    timeline.draw();
    if (held) timeline.hold(held);
    composer.running(conversation.running);
    if (conversation.absent && !conversation.entries().length) timeline.element.before((empty ??= welcome(app, composer)));
    else empty?.remove();
    head();
    app.attention(conversation.questions.length);
  };
  const actions = tools(app, conversation);
  const nameOf = () => (conversation.absent && !conversation.current ? t("New conversation") : app.conversations.nameOf(key));
  const head = () => left || app.head(conversation.title || nameOf(), ...(conversation.current ? actions : []));
  conversation.addEventListener("settings", head);
  const onList = async () => {
    head();
    if (await versions.update()) draw();
  };
  app.conversations.addEventListener("change", onList);
  conversation.addEventListener("change", ({ detail }) => {
    draw();
    if (detail?.kind === "model_replied") announce(detail);
    if (detail?.kind === "tool_returned") announceCall(detail);
    if (detail?.kind === "approval_asked") app.announce(question(detail.tool, detail.what));
  });
  conversation.addEventListener("piece", ({ detail }) => {
    timeline.grow(detail.entry);
    announcer.feed(detail.entry, detail.text);
  });
  conversation.addEventListener("output", ({ detail }) => timeline.growOutput(detail));
  conversation.addEventListener("earlier", () => {
    versions.mark();
    timeline.drawEarlier();
    onList();
    if (wanted) seek();
  });
  conversation.addEventListener("fault", ({ detail }) => app.notice(detail));
  conversation.addEventListener("refused", ({ detail }) => {
    composer.insert(detail.text, detail.attachments);
    composer.refuse(detail.sentence);
  });
  const pressed = (event) => {
    if (event.key === "Escape") clearHighlights();
    if (event.key !== "Escape" || event.defaultPrevented || event.isComposing || !conversation.running) return;
    if (document.querySelector("dialog[open]") || event.target.matches("input, select")) return;
    event.preventDefault();
    conversation.stop();
  };
  document.addEventListener("keydown", pressed);
  element.addEventListener("input", clearHighlights);
  for (const type of ["wheel", "pointerdown", "keydown"]) timeline.element.addEventListener(type, () => (held = null), { passive: true });
  draw();
  onList();
  if (!place && matchMedia("(pointer: fine)").matches) composer.focus();

  /** Scroll to the wanted message; earlier pages are loaded until it is there. */
  async function seek() {
    await conversation.loading;
    if (!wanted) return;
    const entry = conversation.entryAt(wanted, words);
    if (!entry && conversation.more) {
      conversation.earlier().catch((error) => app.notice(error.message));
      return;
    }
    wanted = null;
    if (entry) highlight([...timeline.reveal(entry).querySelectorAll(".said, .prose")], words);
    else app.notice(t("This message is not part of the conversation any more."));
  }

  function announce(event) {
    const transcript = conversation.current;
    const entry = transcript.entries.get(transcript.replyId(event.turn, event.reply));
    if (entry) announcer.feed(entry);
  }

  function announceCall({ call: { of, index } }) {
    const call = conversation.current.replies.get(of)?.calls[index];
    if (call) app.announce(spoken(call));
  }

  return () => {
    left = true;
    clearHighlights();
    element.removeEventListener("input", clearHighlights);
    document.removeEventListener("keydown", pressed);
    leaveComposer();
    app.conversations.removeEventListener("change", onList);
    conversation.close();
    timeline.close();
    app.attention(0);
  };
}

/** Let the whole page use its composer; returns a function that stops. */
function composing(app, element, composer) {
  const ignoreFiles = receiveFiles(element, composer);
  app.composer = composer;
  return () => {
    ignoreFiles();
    app.composer = null;
  };
}

/** The actions of an entry. Messages are never changed: an edit makes another version of the conversation, which is a fork. */
function actsOf(app, conversation, composer) {
  const forked = (act) => async (...given) => {
    try {
      await act(...given);
    } catch (error) {
      app.notice(error.message);
    }
  };
  const go = ({ key, transcript }) => {
    carried.set(key, { transcript });
    app.go(`#/chat/${encodeURIComponent(key)}`);
  };
  const version = async (session, seq, messages) => {
    const made = await conversation.fork(session, conversation.of(session).partsAt(seq));
    const unsent = new Unsent(made.key);
    for (const { text, attachments } of messages) unsent.add(app.socket, text, attachments);
    go(made);
  };
  return {
    edit: forked(async (entry, text) => {
      const { seq, messages } = conversation.of(entry.session).before(entry);
      await version(entry.session, seq, messages.map((message) => (message.id === entry.id ? { ...message, text } : message)));
    }),
    again: forked(async (entry) => {
      const { seq, messages } = conversation.of(entry.session).before(entry);
      await version(entry.session, seq, messages);
    }),
    retry: forked(async (entry) => {
      const messages = conversation.of(entry.session).takenBy(entry.turn);
      if (!messages.length) throw new Error(t("The message of this turn is not loaded yet. Scroll up to it first."));
      conversation.send(messages.map(({ text }) => text).filter(Boolean).join("\n\n"), messages.flatMap(({ attachments }) => attachments));
      composer.refocus();
    }),
    api: app.api,
    cites: (entry) => (text) => placeOf(text, { query: entry.query, of: app.socket.welcome?.agents ? `session:${entry.session}` : "" }),
    words: async ({ session }, citations, query) => {
      const agent = app.socket.welcome?.agents ? (await app.api.get(`/api/sessions/${session}`)).agent : "";
      return Promise.all(citations.map((citation) => placeOf(citation) && formsAt(app.api, citation, query, { agent, otherwise: "" })));
    },
    hrefOf: (key) => `#/chat/${encodeURIComponent(key)}`,
    goOn: forked(async () => {
      conversation.send(t("Continue exactly where you stopped."));
      composer.refocus();
    }),
    answer: async (entry, decision, scope) => {
      try {
        await conversation.approve(entry.approval, decision, scope);
        return true;
      } catch (error) {
        app.notice(error.message);
        return false;
      }
    },
    whatIf: (entry) => {
      const session = entry.session === conversation.current.session ? CURRENT : entry.session;
      app.go(`#/context/${encodeURIComponent(conversation.key)}/${session}/${entry.turn}`);
    },
    fork: forked(async (entry) => {
      const upto = conversation.of(entry.session).ends.get(entry.turn) ?? entry.seq;
      go(await conversation.fork(entry.session, upto, keyFor(app.conversations.nameOf(conversation.key))));
    }),
  };
}

/** The actions next to the title. */
function tools(app, conversation) {
  const { key } = conversation;
  const actions = t("Actions for this conversation");
  const words = t("Context of the model");
  return [
    h("button", { class: "quiet", type: "button", title: actions, "aria-label": actions, "aria-haspopup": "menu",
      on: { click: ({ currentTarget }) => app.conversations.menu(currentTarget, key) } }, icon("more")),
    h("a", { class: "go", href: `#/context/${encodeURIComponent(key)}`, title: words, "aria-label": words }, icon("context")),
  ];
}

/** A key from the first words of a message, if their letters allow it: "plan-the-garden-x7f2". */
function keyFor(text) {
  const plain = text.slice(0, 10 * LONGEST_KEY).normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
  const words = plain.slice(0, LONGEST_KEY).replace(/-[^-]*$/, (cut) => (plain.length > LONGEST_KEY ? "" : cut));
  const mark = Array.from(crypto.getRandomValues(new Uint8Array(4)), (byte, at) => (at % 2 ? byte % 10 : (10 + (byte % 26)).toString(36))).join("");
  return `${words || `chat-${new Date().toISOString().slice(0, 10)}`}-${mark}`;
}
