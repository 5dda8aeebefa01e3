// The settings of a conversation as the composer shows and changes them.

/** Those of a conversation that exists, or of one that begins with its first message. Dispatches `change`. `values` are the
 * agent, the model, the effort, the temperature and the queue mode; what the conversation did not choose is missing. */
export class Settings extends EventTarget {
  /** `ask(name, value)` changes one at the gateway; without it they are kept until the first message. */
  constructor(app, ask = null) {
    super();
    this.app = app;
    this.ask = ask;
    this.values = { queue: "followup" };
    this.changed = {}; // what a new conversation begins with
  }

  /** Take what the gateway says. */
  take({ model, effort, temperature, queue, agent }) {
    this.values = { model, effort, temperature, queue, agent };
    this.dispatchEvent(new Event("change"));
  }

  /** Change one; null restores the default. Resolves to false after a notice if the gateway refuses it. */
  async set(name, value) {
    if (!this.ask) {
      this.changed[name] = value;
      this.take({ ...this.values, [name]: value ?? undefined });
      return true;
    }
    try {
      this.take(await this.ask(name, value));
      return true;
    } catch (error) {
      this.app.notice(error.message);
      this.dispatchEvent(new Event("change"));
      return false;
    }
  }
}
