// Dictation: what is said becomes text at the cursor. A recording is sent once it ends, and is kept nowhere.
import { h } from "../elements.js";
import { icon } from "../icons.js";
import { t } from "../language.js";
import { listed } from "./models.js";

const LONGEST = 10 * 60_000; // milliseconds of a recording
const BITS = 32_000; // of audio in a second: enough for speech
const FORMATS = [["audio/webm;codecs=opus", "webm"], ["audio/mp4", "mp4"], ["audio/ogg;codecs=opus", "ogg"]];

export class Dictation {
  /** `insert(text)` receives what was said, `refuse(sentence)` why nothing was; `refocus()` gets the focus back. */
  constructor(app, { insert, refuse, refocus }) {
    this.app = app;
    this.insert = insert;
    this.refuse = refuse;
    this.refocus = refocus;
    this.take = null; // the recording or its transcription: {cancelled, stream?, recorder?, request?}
    this.button = h("button", { class: "quiet dictate", type: "button", hidden: true, on: { click: () => this.toggle() } });
    this.level = h("span", { class: "level", "aria-hidden": "true" });
    this.clock = h("span", { class: "clock", "aria-hidden": "true" });
    this.discard = h("button", { class: "quiet", type: "button", title: t("Discard the recording (Escape)"),
      "aria-label": t("Discard the recording (Escape)"), on: { click: () => this.cancel() } }, icon("close"));
    this.panel = h("span", { class: "dictation", hidden: true }, this.level, this.clock, this.discard);
    this.status = h("span", { class: "unseen", role: "status" });
    this.onKeydown = (event) => {
      if (event.key !== "Escape" || event.isComposing) return;
      event.preventDefault();
      event.stopPropagation(); // it does not stop the turn, too
      this.cancel();
    };
    listed(app).then(({ transcription }) => this.offer(transcription), () => {}); // offline: nothing can be transcribed
  }

  get elements() {
    return [this.panel, this.button, this.status];
  }

  /** Show the button if a model transcribes and this browser can record: it cannot on pages without TLS from elsewhere. */
  offer(model) {
    if (!model || !globalThis.MediaRecorder || !navigator.mediaDevices) return;
    this.model = model;
    this.button.hidden = false;
    this.draw("idle");
  }

  toggle() {
    if (!this.take) this.record();
    else if (this.take.recorder) this.take.recorder.stop();
  }

  async record() {
    const take = (this.take = { cancelled: false });
    this.refuse("");
    this.draw("asking");
    try {
      take.stream = await navigator.mediaDevices.getUserMedia({ audio: { echoCancellation: true, noiseSuppression: true } });
      if (take.cancelled) return;
      const blob = await this.recorded(take);
      if (take.cancelled) return;
      await this.transcribe(take, blob);
    } catch (error) {
      if (!take.cancelled) this.refuse(why(error));
    } finally {
      for (const track of take.stream?.getTracks() ?? []) track.stop();
      if (this.take === take) this.end();
    }
  }

  /** Record until `stop`; resolves to the recording. */
  async recorded(take) {
    const [type, ending] = FORMATS.find(([each]) => MediaRecorder.isTypeSupported(each)) ?? ["", "webm"];
    const recorder = (take.recorder = new MediaRecorder(take.stream, { mimeType: type, audioBitsPerSecond: BITS }));
    const pieces = [];
    recorder.addEventListener("dataavailable", ({ data }) => pieces.push(data));
    const ended = new Promise((resolve, reject) => {
      recorder.addEventListener("stop", resolve);
      recorder.addEventListener("error", ({ error }) => reject(error));
    });
    recorder.start(1000);
    const stopMeter = this.measure(take.stream);
    const began = Date.now();
    const tick = () => {
      const passed = Date.now() - began;
      this.clock.textContent = `${Math.floor(passed / 60_000)}:${String(Math.floor(passed / 1000) % 60).padStart(2, "0")}`;
      if (!this.button.isConnected) this.cancel(); // another page was opened
      else if (passed >= LONGEST && recorder.state !== "inactive") {
        take.remark = t("The recording ended after {minutes} minutes, which is the longest one.", { minutes: LONGEST / 60_000 });
        recorder.stop();
      }
    };
    const ticking = setInterval(tick, 250);
    tick();
    document.addEventListener("keydown", this.onKeydown, true);
    this.draw("recording");
    try {
      await ended;
    } finally {
      clearInterval(ticking);
      stopMeter();
    }
    return new File(pieces, `dictation.${ending}`, { type: recorder.mimeType });
  }

  async transcribe(take, recording) {
    delete take.recorder;
    for (const track of take.stream.getTracks()) track.stop();
    this.draw("transcribing");
    take.request = new AbortController();
    const { text } = recording.size ? await this.app.api.transcribe(recording, take.request.signal) : { text: "" };
    if (take.cancelled) return;
    if (text.trim()) this.insert(text.trim());
    else this.refuse(t("No words were recognised."));
    if (take.remark) this.refuse(take.remark);
  }

  cancel() {
    const { take } = this;
    if (!take) return;
    take.cancelled = true;
    take.request?.abort();
    if (take.recorder && take.recorder.state !== "inactive") take.recorder.stop();
    this.end();
    this.status.textContent = t("The recording was discarded.");
  }

  end() {
    this.take = null;
    document.removeEventListener("keydown", this.onKeydown, true);
    this.draw("idle");
    if (this.button.isConnected) this.refocus();
  }

  /** Show the level of a stream; return what ends it. */
  measure(stream) {
    const audio = new AudioContext();
    const analyser = audio.createAnalyser();
    const wave = new Float32Array(analyser.fftSize);
    audio.createMediaStreamSource(stream).connect(analyser);
    let frame = 0;
    const show = () => {
      analyser.getFloatTimeDomainData(wave);
      const loudness = Math.sqrt(wave.reduce((sum, each) => sum + each * each, 0) / wave.length);
      this.level.style.setProperty("--loudness", Math.min(1, loudness * 4).toFixed(2));
      frame = requestAnimationFrame(show);
    };
    show();
    return () => {
      cancelAnimationFrame(frame);
      audio.close();
    };
  }

  draw(state) {
    const recording = state === "recording";
    const words = recording ? t("End the recording and insert the text") : t("Dictate; {model} writes it down", { model: this.model });
    this.button.title = words;
    this.button.setAttribute("aria-label", words);
    this.button.classList.toggle("recording", recording);
    this.button.setAttribute("aria-disabled", String(state === "asking" || state === "transcribing")); // it keeps the focus
    this.button.replaceChildren(icon(recording ? "tick" : "microphone"));
    this.panel.hidden = state === "idle" || state === "asking";
    this.level.hidden = !recording;
    if (state === "transcribing") this.clock.textContent = t("Transcribing…");
    const said = { asking: t("The browser asks for the microphone."), recording: t("Recording. Escape discards it."),
      transcribing: t("Transcribing…"), idle: "" };
    this.status.textContent = said[state];
  }
}

/** Return why there is no text, as a sentence. */
function why(error) {
  if (error.name === "NotAllowedError") return t("The browser does not let this page use the microphone. Allow it in the browser’s settings for this page.");
  if (error.name === "NotFoundError") return t("There is no microphone.");
  if (error instanceof DOMException) return t("The microphone cannot be used: {reason}", { reason: error.message });
  if (error instanceof TypeError) return t("The gateway cannot be reached.");
  return error.message;
}
