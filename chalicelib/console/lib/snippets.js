// How programs call a service: what to paste into a terminal or a file. The token comes from the environment.

/** @typedef {{url: string, auth: boolean, model: {name: string, url: string} | null}} Door `url`: whole addresses */
/** @typedef {{key: string, title: string, text: string}} Snippet */

/** @param {Door} door @returns {Snippet[]} */
export const snippets = (door) => (door.model ? ofModel(door, door.model) : ofService(door));

/** @param {string} text a shell's or Python's or JavaScript's string */
const quoted = (text) => JSON.stringify(text);

/** @param {Door} door @returns {Snippet[]} */
function ofService({ url, auth }) {
  return [
    { key: "curl", title: "curl", text: ["curl", auth && '-H "Authorization: Bearer $DSTACK_TOKEN"', quoted(url)].filter(Boolean).join(" ") },
    {
      key: "python", title: "Python",
      text: `import os\nimport httpx\n\n${auth ? 'headers = {"Authorization": f"Bearer {os.environ[\'DSTACK_TOKEN\']}"}\n' : ""}print(httpx.get(${quoted(url)}${auth ? ", headers=headers" : ""}).text)\n`,
    },
    {
      key: "js", title: "JavaScript",
      text: `${auth ? "const headers = { Authorization: `Bearer ${process.env.DSTACK_TOKEN}` };\n" : ""}const answer = await fetch(${quoted(url)}${auth ? ", { headers }" : ""});\nconsole.log(await answer.text());\n`,
    },
  ];
}

/** @param {Door} door @param {{name: string, url: string}} model @returns {Snippet[]} */
function ofModel({ auth }, model) {
  const body = JSON.stringify({ model: model.name, messages: [{ role: "user", content: "Hello" }] });
  const key = auth ? 'os.environ["DSTACK_TOKEN"]' : '"none"', own = auth ? "process.env.DSTACK_TOKEN" : '"none"';
  return [
    {
      key: "curl", title: "curl",
      text: [`curl ${quoted(`${model.url}/chat/completions`)}`, auth && '-H "Authorization: Bearer $DSTACK_TOKEN"', '-H "Content-Type: application/json"', `-d '${body.replaceAll("'", "'\\''")}'`].filter(Boolean).join(" \\\n  "),
    },
    {
      key: "python", title: "Python",
      text: `import os\nfrom openai import OpenAI\n\nclient = OpenAI(base_url=${quoted(model.url)}, api_key=${key})\nanswer = client.chat.completions.create(\n    model=${quoted(model.name)},\n    messages=[{"role": "user", "content": "Hello"}],\n)\nprint(answer.choices[0].message.content)\n`,
    },
    {
      key: "js", title: "JavaScript",
      text: `import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: ${quoted(model.url)}, apiKey: ${own} });\nconst answer = await client.chat.completions.create({\n  model: ${quoted(model.name)},\n  messages: [{ role: "user", content: "Hello" }],\n});\nconsole.log(answer.choices[0].message.content);\n`,
    },
  ];
}
