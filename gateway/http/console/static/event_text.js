// The original text of a message, as the log has it.

/** Return the text of the event `seq` of a session of the key. Throws a FrameError. */
export async function eventText(socket, key, session, seq) {
  const { events } = await socket.ask({ type: "history", session: key, session_id: session, before: seq + 1, limit: 1 });
  const event = events.at(-1);
  return event?.text ?? event?.output ?? "";
}
