// What the log has of a message, whatever the model is shown of it.

/** The text of the event `seq` of a session of the key. Throws where the gateway does not say it. */
export async function textInLog(socket, key, session, seq) {
  const { events } = await socket.ask({ type: "history", session: key, session_id: session, before: seq + 1, limit: 1 });
  const event = events.at(-1);
  return event?.text ?? event?.output ?? "";
}
