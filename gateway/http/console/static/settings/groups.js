// The groups in which the keys are shown. A key belongs to the group that names it, or else to the one that names the longest
// beginning of its path; a key of no group is shown with those of the gateway. Everybody sees the groups that are `personal`.

import { t } from "../language.js";

export const GROUPS = [
  {
    id: "models",
    icon: "chat",
    title: t("Models and keys"),
    about: t("Which model answers, which ones stand in for it, and the accounts that they need. Keys can be replaced, and never read."),
    keys: ["agent", "providers", "prices"],
    sections: [{
      section: "prices", add: t("Set a price"), name: "provider:model", none: t("The prices are the shipped ones."), pattern: /^[^\s"\\]{1,200}$/, last: true,
    }],
  },
  {
    id: "instructions",
    icon: "edit",
    personal: true,
    title: t("Instructions"),
    about: t("What the assistant is told before every conversation."),
    keys: ["agent.instructions", "agent.language", "agent.timezone"],
  },
  {
    id: "conversations",
    icon: "context",
    title: t("Conversations"),
    about: t("Messages that arrive during an answer, and what happens before a conversation exceeds the model's window."),
    keys: ["sessions", "compaction", "pruning", "heartbeat", "agent.verbose"],
  },
  {
    id: "memory",
    icon: "memory",
    title: t("Memory"),
    about: t("Notes, facts and earlier conversations: how they are indexed, searched and recalled."),
    keys: ["memory"],
  },
  {
    id: "tools",
    icon: "tool",
    title: t("Tools and skills"),
    about: t("What the model may read, write, run and look up."),
    keys: ["tools", "sandbox", "skills", "agent.workspace", "agent.workspace_access", "agent.protected_files", "agent.tool_rounds"],
  },
  {
    id: "approvals",
    icon: "tick",
    title: t("Approvals"),
    about: t("Which tool calls wait for your decision, and which are decided by a rule."),
    keys: ["approvals"],
  },
  {
    id: "mcp",
    icon: "fork",
    title: t("MCP"),
    about: t("Servers of the Model Context Protocol whose tools the model may call, and programs that use this gateway."),
    keys: ["mcp", "mcp_access"],
    sections: [
      { section: "mcp", add: t("Add a server"), name: t("Name of the server"), none: t("No servers yet.") },
      { section: "mcp_access", add: t("Add a program"), name: t("Name of the program"), none: t("No programs yet.") },
    ],
  },
  {
    id: "agents",
    icon: "subagent",
    title: t("Agents"),
    about: t("Agents besides main, each with a workspace, a memory and tools of its own. Which one answers where is said by [[routes]] in config.toml: lists of tables are edited there, and “exuvia route explain” tells what they do."),
    keys: ["agents", "routes"],
    sections: [{ section: "agents", add: t("Add an agent"), name: t("Name of the agent"), none: t("No other agents yet: main answers everywhere.") }],
  },
  {
    id: "channels",
    icon: "send",
    title: t("Channels"),
    about: t("Messaging services whose chats become conversations. Their state and who was paired are on the page Health."),
    keys: ["channels", "plugins.senders"],
    sections: [{ section: "channels", add: t("Add a channel"), name: t("Name of the channel"), none: t("No channels yet.") }],
  },
  {
    id: "people",
    icon: "people",
    title: t("People"),
    about: t("Everybody besides you who has a token, with private conversations, notes and files."),
    keys: ["people", "sign_in"],
    sections: [{ section: "people", add: t("Add a person"), name: t("Name of the person"), none: t("Nobody yet: only you use this gateway.") }],
  },
  {
    id: "gateway",
    icon: "health",
    title: t("Gateway"),
    about: t("The address, access, plugins and the log."),
    keys: ["gateway", "log", "plugins"],
  },
  {
    id: "browsers",
    icon: "screen",
    personal: true,
    title: t("Signed-in browsers"),
    about: t("Where you are signed in to this console. Programs that use your token, such as the terminal, are not listed: a new token ends them."),
    keys: [],
  },
];

/** The id of the group of a key. */
export function groupOf(key) {
  let [best, length] = ["gateway", 0];
  for (const { id, keys } of GROUPS) {
    for (const each of keys) {
      if (each.length > length && (key === each || key.startsWith(`${each}.`))) [best, length] = [id, each.length];
    }
  }
  return best;
}

const NAMES = {
  api: "API", ca: "CA", id: "ID", imap: "IMAP", ipv6: "IPv6", irc: "IRC", lm: "LM", mcp: "MCP", mmr: "MMR", oauth: "OAuth", smtp: "SMTP",
  tls: "TLS", ttl: "TTL", url: "URL", openai: "OpenAI", llama: "llama", qmd: "qmd", argv: "command", cwd: "working folder", env: "environment",
};

/** The id of the list of models that fields of models suggest. */
export const MODELS = "settings-models";

/** Whether the value of a key is the name of a model, as "provider:model". */
export const isModel = (key) => /^(agent|compaction|memory\.facts)\.(title_)?model$/.test(key);

/** A name as it stands in a key: quoted if it has other characters than letters, digits, _ and -. */
export const quoted = (name) => (/^[A-Za-z0-9_-]+$/.test(name) ? name : `"${name}"`);

/** A name of the configuration as words: "base_url" as "Base URL". */
export function words(name) {
  const found = name.split("_").map((word) => NAMES[word] ?? word).join(" ");
  return found[0].toUpperCase() + found.slice(1);
}

/** The path of a table as words, without the section that its group is about. */
export function titleOf(table) {
  const names = table.split(".");
  if (names.length === 1) return table === "agent" ? t("Assistant") : words(table);
  const own = ["providers", "tools", "plugins", "memory", "pruning", "compaction"].includes(names[0]) ? names.slice(1) : names;
  return own.map(words).join(" · ");
}
