/** Names of classes in one text, without those that don't apply.
 * @param {...(string | false | null | undefined)} names */
export const classes = (...names) => names.filter(Boolean).join(" ");
