// Run a command in a session over the websocket.

const ANSWER_TIMEOUT = 200_000; // milliseconds; a command may wait for a running turn

/** Return the text of a command's answer. Throws an Error with a sentence if it failed or did not answer. */
export function runCommand(socket, session, text) {
  const id = `console-${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`;
  return new Promise((resolve, reject) => {
    let seq = null;
    const over = (end, value) => {
      listening.forEach((stop) => stop());
      clearTimeout(timer);
      end(value);
    };
    const listening = [
      socket.on("accepted", (frame) => frame.id === id && (seq = frame.seq)),
      socket.on("error", (frame) => frame.id === id && over(reject, new Error(frame.message))),
      socket.on("event", ({ session: key, event }) => {
        if (key !== session || event.kind !== "command_answered" || event.answers !== seq) return;
        if (event.failed) over(reject, new Error(event.answer));
        else over(resolve, event.answer);
      }),
    ];
    const timer = setTimeout(() => over(reject, new Error("The gateway did not answer in time.")), ANSWER_TIMEOUT);
    if (!socket.say({ type: "send", id, session, text })) over(reject, new Error("Not connected."));
  });
}
