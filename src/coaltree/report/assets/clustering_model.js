"use strict";
// The tree as arrays, where its nodes lie, and its cuts. Leaves are 0 … n−1, merge k is node n+k, the root 2n−2.
const clustering = (() => {
  const DARK_PALETTE = [
    "#9c90f0", "#e58a99", "#4fb477", "#e9c35b", "#5cc9b8", "#d177a8", "#9ad7f2", "#c2c25a", "#cf7fc4",
  ];
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  function makeModel(data) {
    const { unpack } = coaltree;
    const n = data.names.length;
    const children = unpack(data.children);
    const times = unpack(data.times);
    const order = unpack(data.order);
    const nodeTime = new Float64Array(2 * n - 1);
    const parent = new Int32Array(2 * n - 1).fill(-1);
    const first = new Int32Array(2 * n - 1); // first and last position of the leaves under a node
    const last = new Int32Array(2 * n - 1);
    const place = new Float64Array(2 * n - 1);
    order.forEach((leaf, position) => { first[leaf] = last[leaf] = place[leaf] = position; });
    for (let k = 0; k < n - 1; k++) {
      const node = n + k, a = children[2 * k], b = children[2 * k + 1];
      nodeTime[node] = times[k];
      parent[a] = parent[b] = node;
      first[node] = Math.min(first[a], first[b]);
      last[node] = Math.max(last[a], last[b]);
      place[node] = (place[a] + place[b]) / 2;
    }
    return {
      n, names: data.names, children, times, order, nodeTime, parent, first, last, place,
      support: unpack(data.support), low: unpack(data.low), high: unpack(data.high), level: data.level,
      palette: data.palette, chosen: data.n_clusters, features: data.features,
      heat: data.heat ? makeHeat(data.heat, n) : null,
    };
  }

  /** The data as whole numbers per column: value = low + step · number, and −1 where it is missing. */
  function makeHeat(heat, n) {
    const codes = coaltree.unpack(heat.codes);
    const d = heat.columns.length;
    const value = (leaf, j) => {
      const code = codes[leaf * d + j];
      return code < 0 ? NaN : heat.low[j] + heat.step[j] * code;
    };
    const score = (leaf, j) => (heat.deviation[j] > 0 ? (value(leaf, j) - heat.mean[j]) / heat.deviation[j] : 0);
    return { d, n, columns: heat.columns, value, score, limit: heat.limit, standardised: heat.standardised };
  }

  /** Clusters of the cut into k: numbered from 0 in the order of their first leaf, as Tree.cut does. */
  function cut(model, k) {
    const { n, parent } = model;
    const top = 2 * n - k; // nodes from here on are merges above the cut
    const head = new Int32Array(2 * n - 1);
    for (let node = 2 * n - 2; node >= 0; node--) {
      head[node] = parent[node] < 0 || parent[node] >= top ? node : head[parent[node]];
    }
    const numbers = new Map();
    const labels = new Int32Array(n);
    for (let leaf = 0; leaf < n; leaf++) {
      if (!numbers.has(head[leaf])) numbers.set(head[leaf], numbers.size);
      labels[leaf] = numbers.get(head[leaf]);
    }
    const below = n - k > 0 ? model.times[n - k - 1] : 0;
    const above = k > 1 ? model.times[n - k] : model.times[n - 2] * 1.03;
    return { k, top, head, labels, heads: [...numbers.keys()], time: (below + above) / 2 };
  }

  const size = (model, node) => model.last[node] - model.first[node] + 1;
  const members = (model, node) => Array.from(model.order.subarray(model.first[node], model.last[node] + 1));

  function colours(model) {
    const style = getComputedStyle(document.documentElement);
    const variable = (name) => style.getPropertyValue(name).trim();
    return {
      dark: dark.matches, ink: variable("--ink"), soft: variable("--soft"), line: variable("--line"),
      paper: variable("--paper"), middle: variable("--middle"), accent: variable("--accent"),
      cluster: (number) => (dark.matches ? DARK_PALETTE : model.palette)[number % model.palette.length],
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
