// What can be done with a conversation: the menu of its row, which the page of the conversation shows, too. What concerns the
// conversation as a whole is done with all of its versions.
import { askLine } from "../controls.js";
import { readable } from "../elements.js";
import { sentence } from "../format.js";
import { t } from "../language.js";
import { deletion, exporting, sharing } from "./dialogs.js";
import { openMenu } from "./menu.js";

const LONGEST_TITLE = 100;

export class Actions {
  constructor(app, sidebar) {
    this.app = app;
    this.sidebar = sidebar;
  }

  /** Open the menu of a conversation beside a button. */
  menu(anchor, conversation) {
    const { pinned, archived, name } = conversation;
    openMenu(anchor, t("Actions for “{name}”", { name: readable(name) }), [
      { label: t("Rename…"), icon: "edit", act: () => this.rename(conversation) },
      { label: pinned ? t("Unpin") : t("Pin"), icon: "pin", act: () => this.pin(conversation, !pinned) },
      ...(conversation.rows.length > 1 ? [{ label: t("Versions…"), icon: "fork", act: () => this.tree(conversation) }] : []),
      { label: archived ? t("Unarchive") : t("Archive"), icon: "archive", act: () => this.archive(conversation, !archived) },
      { label: t("Export…"), icon: "download", act: () => exporting(conversation) },
      { label: t("Share…"), icon: "share", act: () => sharing(this.app, conversation) },
      null,
      { label: t("Delete…"), icon: "bin", danger: true, act: () => this.delete(conversation) },
    ]);
  }

  async rename(conversation) {
    const title = await askLine(t("Rename the conversation"), { label: t("Title"), value: conversation.shown.title,
      placeholder: readable(conversation.name), action: t("Rename"), limit: LONGEST_TITLE });
    if (title !== null) await this.each(conversation.rows, (row) => ({ type: "rename", session: row.session, title }));
  }

  async tree(conversation) {
    const { showTree } = await import("../chat/versions.js");
    await showTree(this.app, conversation, this.sidebar.open);
  }

  async pin(conversation, pinned) {
    const rows = pinned ? [conversation.shown] : conversation.rows.filter((row) => row.pinned);
    await this.each(rows, (row) => ({ type: "pin", session: row.session, pinned }));
  }

  async archive(conversation, archived) {
    await this.each(conversation.rows, (row) => ({ type: "archive", session: row.session, archived }));
  }

  delete(conversation) {
    deletion(this.app, conversation);
  }

  /** Send a frame for each of these rows; true if all were accepted. */
  async each(rows, frameOf) {
    try {
      for (const row of rows) await this.app.socket.ask(frameOf(row));
      return true;
    } catch (error) {
      this.app.notice(sentence(error));
      return false;
    }
  }
}
