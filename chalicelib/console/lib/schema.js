// What the schema of configurations says about a place in one: what a key means, what it takes, and which keys there are.

/** @typedef {Record<string, any>} Schema */
/** @typedef {{name: string, about: string, kinds: string, examples: string[], values: string[], needed: boolean}} Hint */

/** @param {Schema} root @param {Schema | undefined} schema @returns {Schema} */
function resolved(root, schema) {
  let found = schema ?? {};
  while (found.$ref) found = { ...root.$defs[found.$ref.split("/").pop() ?? ""], ...described(found) };
  return found;
}

/** @param {Schema} schema */
const described = (schema) => (schema.description ? { description: schema.description } : {});

/** All forms that a value may have. @param {Schema} root @param {Schema} schema @returns {Schema[]} */
function arms(root, schema) {
  const here = resolved(root, schema);
  const among = [...(here.anyOf ?? []), ...(here.oneOf ?? [])];
  return among.length ? among.flatMap((/** @type {Schema} */ arm) => arms(root, arm)) : [here];
}

/** The schema of a whole configuration of this type; volumes have one for each backend.
 * @param {Schema} root @param {string} type @param {string} backend */
function typed(root, type, backend) {
  if (!type) return root;
  const met = (root.allOf ?? []).filter((/** @type {Schema} */ rule) => {
    const wanted = rule.if?.properties ?? {};
    return wanted.type?.const === type && (!wanted.backend || wanted.backend.const === backend) && rule.then;
  });
  return met.map((/** @type {Schema} */ rule) => rule.then).find((/** @type {Schema} */ then) => then.$ref) ?? met[0]?.then ?? root;
}

/** The schemas of a place. @param {Schema} root @param {string} type @param {string} backend @param {(string | number)[]} path */
function at(root, type, backend, path) {
  let here = arms(root, typed(root, type, backend));
  for (const part of path) {
    here = here.flatMap((schema) => {
      if (typeof part === "number") return schema.items ? arms(root, schema.items) : [];
      const inner = schema.properties?.[part] ?? (typeof schema.additionalProperties === "object" ? schema.additionalProperties : undefined);
      return inner ? arms(root, inner) : [];
    });
  }
  return here;
}

/** The keys that can be at a place; `type` is the whole schema's, which knows all of them. @param {Schema} root @param {string} type @param {string} backend @param {(string | number)[]} path @returns {Hint[]} */
export function keysAt(root, type, backend, path) {
  const found = new Map();
  if (path.length === 0 && root.properties?.type) found.set("type", hintOf(root, "type", root.properties.type, true));
  for (const schema of at(root, type, backend, path)) {
    for (const [name, inner] of Object.entries(schema.properties ?? {})) {
      if (!found.has(name)) found.set(name, hintOf(root, name, /** @type {Schema} */ (inner), (schema.required ?? []).includes(name)));
    }
  }
  return [...found.values()];
}

/** What one key is about. @param {Schema} root @param {string} type @param {string} backend @param {(string | number)[]} path @param {string} key @returns {Hint | null} */
export function hintAt(root, type, backend, path, key) {
  return keysAt(root, type, backend, path).find((hint) => hint.name === key) ?? null;
}

/** @param {Schema} root @param {string} name @param {Schema} inner @param {boolean} needed @returns {Hint} */
function hintOf(root, name, inner, needed) {
  const forms = arms(root, inner);
  const values = forms.flatMap((form) => form.enum ?? ("const" in form ? [form.const] : [])).map(String);
  const examples = [...(inner.examples ?? []), ...forms.flatMap((form) => form.examples ?? [])].map(shown);
  const kinds = [...new Set(forms.flatMap(kindOf))].filter(Boolean).join(", ");
  return { name, about: resolved(root, inner).description ?? "", kinds, examples: [...new Set(examples)].slice(0, 3), values: [...new Set(values)].slice(0, 12), needed };
}

/** @param {Schema} form */
function kindOf(form) {
  const names = /** @type {Record<string, string>} */ ({ object: "keys", array: "list", string: "text", integer: "number", number: "number", boolean: "true or false" });
  return [form.type].flat().map((/** @type {string} */ kind) => names[kind] ?? "");
}

/** @param {any} example */
const shown = (example) => (typeof example === "string" ? example : JSON.stringify(example));
