/** What fetches a script, again and again. Some browsers remember for good that an address failed, and say which it was:
 * it gets another then.
 * @template M @param {() => Promise<M>} load @param {(address: string) => Promise<M>} [other] @returns {() => Promise<M>} */
export function script(load, other = (address) => import(address)) {
  let address = "", tries = 0;
  return () => (address ? other(`${address}?again=${++tries}`) : load()).catch((error) => {
    address ||= /https?:\/\/[^\s?]+/.exec(error.message)?.[0] ?? "";
    throw error;
  });
}

/** The address of the script that a page of the console begins with; null if it is another's page. @param {string} page */
export const scriptOf = (page) => /<script type="module" src="([^"]+)"/.exec(page)?.[1] ?? null;
