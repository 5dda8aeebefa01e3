// The differences of two texts, line by line.

/** Above this number of pairs of differing lines, their common lines are not searched. */
const MOST = 4_000_000;

/**
 * Return the lines of both in order, each with a sign: "-" only in the first, "+" only in the second, " " in both. The common
 * beginning and end are skipped; the rest is compared by its longest common subsequence.
 * @param {string[]} one @param {string[]} other @returns {{sign: string, line: string}[]}
 */
export function lineChanges(one, other) {
  let head = 0;
  while (head < one.length && head < other.length && one[head] === other[head]) head++;
  let tail = 0;
  while (tail < one.length - head && tail < other.length - head && one.at(-1 - tail) === other.at(-1 - tail)) tail++;
  const middle = differing(one.slice(head, one.length - tail), other.slice(head, other.length - tail));
  return [...signed(" ", one.slice(0, head)), ...middle, ...signed(" ", one.slice(one.length - tail))];
}

const signed = (sign, lines) => lines.map((line) => ({ sign, line }));

function differing(one, other) {
  if (one.length * other.length > MOST) return [...signed("-", one), ...signed("+", other)];
  const width = other.length + 1;
  const longest = new Uint32Array((one.length + 1) * width);
  for (let i = one.length - 1; i >= 0; i--) {
    for (let j = other.length - 1; j >= 0; j--) {
      const at = i * width + j;
      longest[at] = one[i] === other[j] ? longest[at + width + 1] + 1 : Math.max(longest[at + width], longest[at + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < one.length && j < other.length) {
    if (one[i] === other[j]) found.push({ sign: " ", line: one[i++] }), j++;
    else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) found.push({ sign: "-", line: one[i++] });
    else found.push({ sign: "+", line: other[j++] });
  }
  return [...found, ...signed("-", one.slice(i)), ...signed("+", other.slice(j))];
}
