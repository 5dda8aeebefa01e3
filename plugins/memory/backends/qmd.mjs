// What runs in Node for the backend `qmd`: qmd's own library, asked by one line of JSON after the other on the standard input,
// each answered by one on the standard output. It ends with its input. Arguments: qmd's library, the folder of words, and the
// names of the folders in it.
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [library, folder, ...shards] = process.argv.slice(2);

// What the library has to say is no answer.
console.log = console.info = console.error;

const told = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);

const opened = async () => {
  // An older one does not refuse qmd's binaries: it crashes.
  if (parseInt(process.versions.node, 10) < 22) throw new Error(`Node ${process.versions.node} is older than 22`);
  const { createStore } = await import(pathToFileURL(library));
  const collections = Object.fromEntries(shards.map((shard) => [shard, { path: join(folder, shard), pattern: "*.qmdwords" }]));
  const store = await createStore({ dbPath: join(folder, "index.sqlite"), config: { collections } });
  const found = Object.values(store.internal.db.prepare("PRAGMA quick_check(1)").get())[0];
  if (found !== "ok") throw new Error(`its index is harmed: ${found}`);
  return store;
};

const named = (path) => path.split("/").pop().replace(/\.qmdwords$/, "");

// A word in quotation marks is found as it is: without them, what merely begins with it would be too, and `-` would mean "not".
// qmd gives |x| / (1 + |x|) for x of bm25.
const having = async (store, word, limit) => {
  const found = await store.searchLex(`"${word}"`, { limit });
  return found.map(({ filepath, score }) => [named(filepath), score / (1 - score)]);
};

try {
  const store = await opened();
  for await (const line of createInterface({ input: process.stdin })) {
    const { update, words, limit } = JSON.parse(line);
    if (update) {
      await store.update({ collections: update });
      told({ found: [] });
    } else {
      told({ found: await Promise.all(words.map((word) => having(store, word, limit))) });
    }
  }
  await store.close();
} catch (error) {
  told({ failed: String(error.message ?? error).split("\n")[0] });
  process.exit(1);
}
