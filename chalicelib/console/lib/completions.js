// Server-sent events of a chat completion, as they come: a text may end in the middle of an event.

/** @typedef {{text: string, usage: {prompt_tokens: number, completion_tokens: number} | null, done: boolean, error: string | null}} Piece */

/** Reads pieces out of a stream. @returns {(text: string) => Piece[]} */
export function reader() {
  let rest = "";
  return (text) => {
    const lines = (rest + text).split(/\r\n|\n|\r/);
    rest = lines.pop() ?? "";
    return lines.filter((line) => line.startsWith("data:")).map((line) => pieceOf(line.slice(5).trim()));
  };
}

/** @param {string} data @returns {Piece} */
function pieceOf(data) {
  if (data === "[DONE]") return { text: "", usage: null, done: true, error: null };
  try {
    const found = JSON.parse(data);
    const delta = found.choices?.[0]?.delta ?? {};
    return { text: [delta.reasoning_content, delta.content].filter(Boolean).join(""), usage: found.usage ?? null, done: false, error: found.error?.message ?? null };
  } catch {
    return { text: "", usage: null, done: false, error: "The model sent something that isn't an event of a completion." };
  }
}

/** What an answer that isn't a stream says went wrong. @param {number} status @param {string} text */
export function refusalOf(status, text) {
  try {
    const found = JSON.parse(text);
    const said = found.error?.message ?? found.detail?.[0]?.msg ?? found.detail ?? found.message;
    if (typeof said === "string") return said;
  } catch {
    // a page of a proxy or of the model's server: its status says more
  }
  return `The service answered with status ${status}.`;
}
