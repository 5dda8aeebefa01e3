// A command, typed in a session over the websocket, and its answer.

const PATIENCE = 200_000; // milliseconds: what runs between turns waits for a turn

/** The text of a command's answer. Throws an Error with a sentence where it failed or nothing came. */
export function typed(socket, session, text) {
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
    const timer = setTimeout(() => over(reject, new Error("The gateway has not answered yet.")), PATIENCE);
    if (!socket.say({ type: "send", id, session, text })) over(reject, new Error("There is no connection now."));
  });
}
