"use strict";
// What of a tree is shown at once: a branch, opened into tips that are rows or closed clades.
(() => {
  const HIDDEN = 0, OPEN = 1, TIP = 2;

  /**
   * The clades to open, of those under `root`, for at most `most` tips: what is not in one `cluster` if given, and then
   * again and again the largest one. A clade counts for its rows, for half of them if its parts have no overlap.
   */
  function opened(model, root, most, cluster) {
    const { n, children, overlap } = model;
    const key = (node) => {
      if (cluster && cluster[node] < 0) return Infinity;
      let share = overlap ? 0 : 1;
      if (overlap) for (const side of [0, 1]) {
        const part = children[2 * (node - n) + side];
        if (part >= n) share = Math.max(share, overlap[part - n]);
      }
      return clustering.size(model, node) * (1 + share) / 2;
    };
    const closed = root >= n ? [{ node: root, key: key(root) }] : [];
    const open = [];
    for (let tips = 1; tips < most && closed.length; tips++) {
      let best = 0;
      for (let i = 1; i < closed.length; i++) {
        const a = closed[i], b = closed[best];
        if (a.key > b.key || (a.key === b.key && a.node > b.node)) best = i;
      }
      const { node } = closed[best];
      closed[best] = closed[closed.length - 1];
      closed.pop();
      open.push(node);
      for (const side of [0, 1]) {
        const part = children[2 * (node - n) + side];
        if (part >= n) closed.push({ node: part, key: key(part) });
      }
    }
    return open;
  }

  /** Where the shown nodes lie: first, last and place count tips from the top; state tells what is shown and how. */
  clustering.makeLayout = (model) => {
    const { n, children } = model;
    const state = new Uint8Array(2 * n - 1);
    const first = new Int32Array(2 * n - 1), last = new Int32Array(2 * n - 1), place = new Float64Array(2 * n - 1);
    const layout = { root: -1, tips: [], open: [], state, first, last, place };
    layout.isClosed = (node) => node >= n && state[node] === TIP;
    layout.isShown = (node) => node >= 0 && state[node] !== HIDDEN;
    layout.parent = (node) => (node === layout.root ? -1 : model.parent[node]);
    layout.show = (root, most, cluster) => {
      for (const node of [...layout.tips, ...layout.open]) state[node] = HIDDEN;
      const open = opened(model, root, most, cluster);
      for (const node of open) state[node] = OPEN;
      const parts = open.flatMap((node) => [children[2 * (node - n)], children[2 * (node - n) + 1]]);
      const tips = [root, ...parts].filter((node) => state[node] !== OPEN);
      tips.sort((a, b) => model.first[a] - model.first[b]);
      tips.forEach((node, i) => {
        state[node] = TIP;
        first[node] = last[node] = place[node] = i;
      });
      open.sort((a, b) => a - b); // parts before the whole
      for (const node of open) {
        const a = children[2 * (node - n)], b = children[2 * (node - n) + 1];
        first[node] = Math.min(first[a], first[b]);
        last[node] = Math.max(last[a], last[b]);
        place[node] = (place[a] + place[b]) / 2;
      }
      Object.assign(layout, { root, tips, open });
    };
    return layout;
  };
})();
