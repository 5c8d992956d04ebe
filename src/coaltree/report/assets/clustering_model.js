"use strict";
// The tree as arrays, where its nodes lie, and its cuts. Leaves are 0 … n−1, merge k is node n+k, the root 2n−2.
const clustering = (() => {
  const DARK_PALETTE = [
    "#9c90f0", "#e58a99", "#4fb477", "#e9c35b", "#5cc9b8", "#d177a8", "#9ad7f2", "#c2c25a", "#cf7fc4",
  ];
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  function makeModel(data) {
    const { unpack } = coaltree;
    const { n, unit } = data;
    const children = unpack(data.children);
    const scaled = (packed, factor) => (packed ? Float64Array.from(unpack(packed), (value) => value * factor) : null);
    const times = scaled(data.times, unit);
    const nodeTime = new Float64Array(2 * n - 1);
    const parent = new Int32Array(2 * n - 1).fill(-1);
    const rows = new Int32Array(2 * n - 1).fill(1);
    for (let k = 0; k < n - 1; k++) {
      const a = children[2 * k], b = children[2 * k + 1];
      nodeTime[n + k] = times[k];
      parent[a] = parent[b] = n + k;
      rows[n + k] = rows[a] + rows[b];
    }
    // Rows from top to bottom, with the larger side of every merge above: first and last are where a node's rows lie.
    const first = new Int32Array(2 * n - 1), last = new Int32Array(2 * n - 1), order = new Int32Array(n);
    for (let k = n - 2; k >= 0; k--) {
      const a = children[2 * k], b = children[2 * k + 1];
      const upper = rows[b] >= rows[a] ? b : a, lower = upper === a ? b : a;
      first[upper] = first[n + k];
      first[lower] = first[n + k] + rows[upper];
    }
    for (let node = 0; node < 2 * n - 1; node++) last[node] = first[node] + rows[node] - 1;
    for (let leaf = 0; leaf < n; leaf++) order[first[leaf]] = leaf;
    const { numbered } = data;
    const names = data.names || Array.from({ length: n }, (_, i) => `${numbered.prefix}${numbered.start + i}`);
    const nothing = new Float64Array(n - 1).fill(NaN);
    // Merges in the order in which more clusters undo them, and rows that belong to none.
    const splits = data.order ? unpack(data.order) : Int32Array.from({ length: n - 1 }, (_, i) => n - 2 - i);
    const outliers = new Set(data.outliers || []);
    return {
      splits, outliers,
      n, names, children, times, order, nodeTime, parent, first, last, overlap: scaled(data.overlap, 1 / 65534),
      exact: scaled(data.exact, 1 / 65534),
      low: scaled(data.low, unit) || nothing, high: scaled(data.high, unit) || nothing, level: data.level,
      palette: data.palette, chosen: data.n_clusters, heat: data.heat ? makeHeat(data.heat, order) : null,
    };
  }

  /** The data, as `heat_data` writes them: values of rows, and means over the rows of a clade, in O(1). */
  function makeHeat(heat, order) {
    const codes = coaltree.unpack(heat.codes);
    const d = heat.columns.length, n = order.length;
    const coarse = heat.codes.dtype === "u1";
    const score = (leaf, j) => {
      const code = codes[leaf * d + j];
      if (code === (coarse ? 255 : -1)) return NaN;
      const at = heat.low[j] + heat.step[j] * code;
      if (heat.deviation[j] === 0) return 0;
      return coarse ? Math.sinh(at) : (at - heat.mean[j]) / heat.deviation[j];
    };
    const sums = new Float64Array((n + 1) * d), counts = new Int32Array((n + 1) * d);
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < d; j++) {
        const value = score(order[i], j), at = i * d + j, missing = Number.isNaN(value);
        sums[at + d] = sums[at] + (missing ? 0 : value);
        counts[at + d] = counts[at] + (missing ? 0 : 1);
      }
    }
    /** Mean of column j over the rows from one position to another, in standard deviations from the column's mean. */
    const meanScore = (from, to, j) => {
      const a = from * d + j, b = (to + 1) * d + j, count = counts[b] - counts[a];
      return count ? (sums[b] - sums[a]) / count : NaN;
    };
    const inUnits = (value, j) => heat.mean[j] + heat.deviation[j] * value;
    const levels = heat.levels || heat.columns.map(() => null);
    const level = (leaf, j) => Math.round(inUnits(score(leaf, j), j));
    /** Shares of the levels of column j over the rows from one position to another. */
    const shares = (from, to, j) => {
      const found = new Float64Array(levels[j].length);
      let count = 0;
      for (let i = from; i <= to; i++) {
        const at = level(order[i], j);
        if (!Number.isNaN(at)) { found[at] += 1; count += 1; }
      }
      return count ? found.map((rows) => rows / count) : found;
    };
    return {
      levels, shares, levelName: (leaf, j) => levels[j][level(leaf, j)] ?? "–",
      d, columns: heat.columns, limit: heat.limit, coarse, meanScore,
      value: (leaf, j) => inUnits(score(leaf, j), j),
      mean: (from, to, j) => inUnits(meanScore(from, to, j), j),
    };
  }

  /**
   * Clusters of the cut into k: numbered from 0 in the order of their first leaf, as Hierarchy.cut does, −1 for
   * outliers. `cluster` has the number of each node whose rows are all of one cluster, −1 for others. `time` is where
   * a line would cut the tree so, NaN if no line does.
   */
  function cut(model, k) {
    const { n, parent, children, nodeTime, outliers } = model;
    const undone = new Uint8Array(2 * n - 1);
    for (let i = 0; i < k - 1; i++) undone[n + model.splits[i]] = 1;
    const head = new Int32Array(2 * n - 1);
    for (let node = 2 * n - 2; node >= 0; node--) {
      head[node] = parent[node] < 0 || undone[parent[node]] ? node : head[parent[node]];
    }
    const numbers = new Map();
    const labels = new Int32Array(n).fill(-1), counts = [];
    for (let leaf = 0; leaf < n; leaf++) {
      if (outliers.has(leaf)) continue;
      if (!numbers.has(head[leaf])) counts[numbers.size] = 0, numbers.set(head[leaf], numbers.size);
      labels[leaf] = numbers.get(head[leaf]);
      counts[labels[leaf]]++;
    }
    const cluster = new Int32Array(2 * n - 1);
    cluster.set(labels);
    let below = 0, above = nodeTime[2 * n - 2] * 1.03;
    for (let node = n; node < 2 * n - 1; node++) {
      const a = cluster[children[2 * (node - n)]], b = cluster[children[2 * (node - n) + 1]];
      cluster[node] = a === b ? a : -1;
      if (cluster[node] >= 0) below = Math.max(below, nodeTime[node]);
      else above = Math.min(above, nodeTime[node]);
    }
    // The node of a cluster is the lowest that holds all of it: outliers that joined late are not in it.
    const heads = [...numbers.keys()].map((node) => {
      for (;;) {
        if (node < n || cluster[node] >= 0) return node;
        const inner = [0, 1].map((side) => children[2 * (node - n) + side]).filter((child) => kept(model, child));
        if (inner.length !== 1) return node;
        [node] = inner;
      }
    });
    return { k, cluster, labels, heads, counts, time: below <= above ? (below + above) / 2 : NaN };
  }

  /** Whether a node has rows that are no outliers. */
  function kept(model, node) {
    if (!model.outliers.size) return true;
    for (let i = model.first[node]; i <= model.last[node]; i++) if (!model.outliers.has(model.order[i])) return true;
    return false;
  }

  const size = (model, node) => model.last[node] - model.first[node] + 1;
  const members = (model, node, most) =>
    Array.from(model.order.subarray(model.first[node], Math.min(model.last[node] + 1, model.first[node] + most)));

  function colours(model) {
    const style = getComputedStyle(document.documentElement);
    const variable = (name) => style.getPropertyValue(name).trim();
    return {
      dark: dark.matches, ink: variable("--ink"), soft: variable("--soft"), line: variable("--line"),
      paper: variable("--paper"), middle: variable("--middle"), accent: variable("--accent"),
      cluster: (number) =>
        number < 0 ? variable("--soft") : (dark.matches ? DARK_PALETTE : model.palette)[number % model.palette.length],
    };
  }

  /** Short text for a number: four significant digits. */
  const short = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(4))) : "–");
  const percent = (value) => `${Math.round(100 * value)}%`;
  const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

  /** A function from 0 … 1 to [r, g, b] through evenly spaced colours in #rrggbb. */
  function ramp(stops) {
    const rgb = stops.map((stop) => [1, 3, 5].map((i) => parseInt(stop.slice(i, i + 2), 16)));
    return (share) => {
      const at = Math.min(Math.max(share, 0), 1) * (rgb.length - 1);
      const i = Math.min(Math.floor(at), rgb.length - 2);
      return rgb[i].map((c, channel) => Math.round(c + (at - i) * (rgb[i + 1][channel] - c)));
    };
  }

  /** Fit a canvas to its box and the screen's pixels; returns its drawing context, in CSS pixels. */
  function sized(canvas, width, height) {
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    return context;
  }

  const onRecolour = (redraw) => {
    dark.addEventListener("change", redraw);
    window.addEventListener("beforeprint", redraw);
  };

  return { makeModel, cut, size, members, colours, short, percent, clip, ramp, sized, onRecolour, shared: {} };
})();
