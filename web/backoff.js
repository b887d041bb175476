/** How long to wait before the next attempt? Exponential, capped, jittered so that many windows don't return at once. */

/** First delay: short, because the usual cause is a phone that changed networks. */
export const FIRST_MS = 400;
/** Longest delay: a daemon that came back is noticed within this. */
export const LONGEST_MS = 15_000;

/**
 * @param {number} attempt 0 for the first retry after a working connection.
 * @param {number} random In [0, 1).
 * @returns {number} Milliseconds, between half of the step and the whole of it.
 */
export function backoff(attempt, random) {
  const step = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(attempt, 16));
  return Math.round(step / 2 + (step / 2) * random);
}
