// Traces of thousands of points have the mode "none" (`dashboards/pareto/dense.py`): Plotly finds their points under the
// pointer and draws nothing, since it takes seconds for an element for each point. Here a path for each colour draws
// them, in Plotly's own layer, where zoom and the clip of the chart apply to it.
(() => {
  const TINTS = 48;
  const LINES = 500; // of one path
  const GLYPHS = {
    "circle-open": (x, y, r) => `M${x + r},${y}a${r},${r} 0 1,1 ${-2 * r},0a${r},${r} 0 1,1 ${2 * r},0`,
    "square-open": (x, y, r) => `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
    "x-thin-open": (x, y, r) => `M${x - r},${y - r}l${2 * r},${2 * r}m0,${-2 * r}l${-2 * r},${2 * r}`,
  };
  const SVG = "http://www.w3.org/2000/svg";
  const tenth = (value) => Math.round(value * 10) / 10;

  // Return the colour at a share, 0 to 1, of a Plotly colour scale of `rgb()` colours.
  function tintAt(scale, share) {
    const above = Math.max(1, scale.findIndex(([at]) => at >= share));
    const [[low, from], [high, to]] = [scale[above - 1], scale[above]];
    const [one, other] = [from, to].map((tint) => tint.match(/[\d.]+/g).map(Number));
    const mixed = one.map((value, i) => Math.round(value + (other[i] - value) * (share - low) / (high - low)));
    return `rgb(${mixed.join()})`;
  }

  // Return path data by colour, of the points of a trace that are in the chart's window or beside it, where panning
  // brings them into view.
  function dotsOf(points, marker, xaxis, yaxis) {
    const { color, colorscale, cmin, cmax, size, symbol } = marker;
    const drawn = new Map();
    points.forEach((point, i) => {
      const [x, y] = [tenth(xaxis.c2p(point.x)), tenth(yaxis.c2p(point.y))];
      const near = Math.abs(x) < 2 * xaxis._length && Math.abs(y) < 2 * yaxis._length; // false for NaN
      if (!near) return;
      const tint = Array.isArray(color) ? Math.round((TINTS * (color[i] - cmin)) / (cmax - cmin)) : color;
      if (!drawn.has(tint)) drawn.set(tint, []);
      drawn.get(tint).push(GLYPHS[symbol](x, y, size / 2));
    });
    return [...drawn].map(([tint, data]) => [
      typeof tint === "number" ? tintAt(colorscale, Math.min(1, Math.max(0, tint / TINTS))) : tint, data.join(""),
    ]);
  }

  // Return path data of lines with gaps. Chromium draws each line of a single path in a translucent group over the
  // others, which adds up to an opaque area, so there are several paths.
  function linesOf(points, xaxis, yaxis) {
    const paths = [""];
    let on = false, lines = 0;
    for (const { x, y } of points) {
      const [across, up] = [tenth(xaxis.c2p(x)), tenth(yaxis.c2p(y))];
      const known = Number.isFinite(across) && Number.isFinite(up);
      if (known && !on && ++lines % LINES === 0) paths.push("");
      if (known) paths[paths.length - 1] += `${on ? "L" : "M"}${across},${up}`;
      on = known;
    }
    return paths;
  }

  function draw(chart) {
    const layer = chart.querySelector(".scatterlayer");
    const { xaxis, yaxis } = chart._fullLayout || {};
    if (!layer || !xaxis || !chart.calcdata) return;
    const state = [xaxis, yaxis].flatMap((axis) => [axis.type, axis._length, ...axis.range]).join();
    const before = layer.querySelector(":scope > .dense");
    // Plotly computes points anew for other data, and not for a shape that marks a point.
    if (before && chart.edpDrawn?.calcdata === chart.calcdata && chart.edpDrawn.state === state) return;
    before?.remove();
    chart.edpDrawn = { calcdata: chart.calcdata, state };
    const all = document.createElementNS(SVG, "g");
    all.setAttribute("class", "dense");
    for (const points of chart.calcdata) {
      const trace = points[0]?.trace;
      if (trace?.mode !== "none" || trace.visible !== true) continue;
      const { marker, line, opacity } = trace._input;
      const group = all.appendChild(document.createElementNS(SVG, "g"));
      group.setAttribute("style", `opacity: ${opacity}; fill: none; stroke-width: ${(line || marker.line).width}px`);
      const paths = marker ? dotsOf(points, marker, xaxis, yaxis) : linesOf(points, xaxis, yaxis).map((data) => [line.color, data]);
      for (const [tint, data] of paths) {
        const path = group.appendChild(document.createElementNS(SVG, "path"));
        path.setAttribute("d", data);
        path.setAttribute("style", `stroke: ${tint}`);
      }
    }
    if (all.firstChild) layer.prepend(all);
  }

  // The text of a dense trace's point is asked for when it is hovered over: the texts of all points take megabytes.
  function hover(chart, point) {
    chart.edpHovered = point;
    if (point?.data.mode !== "none" || !point.data.meta.axes || point.data.text[point.pointNumber]) return;
    const { curveNumber, pointNumber, customdata, data } = point;
    const still = () => chart.edpHovered === point;
    setTimeout(async () => {
      if (!still()) return;
      const answer = await fetch(`hover?${new URLSearchParams({ point: customdata, axes: data.meta.axes })}`);
      if (!answer.ok) return;
      data.text[pointNumber] = await answer.text();
      if (still()) window.Plotly.Fx.hover(chart, [{ curveNumber, pointNumber }]);
    }, 40); // not of each point that the pointer passes
  }

  // Plotly's picture of a chart has what Plotly draws, so it draws the dense traces for it.
  document.addEventListener("click", (event) => {
    const chart = event.target.closest?.('.modebar-btn[data-title^="Download"]')?.closest(".js-plotly-plot");
    if (!chart?.data.some((trace) => trace.mode === "none")) return;
    event.stopPropagation();
    const data = chart.data.map((trace) => (trace.mode === "none" ? { ...trace, mode: "markers" } : trace));
    const { width, height } = chart._fullLayout;
    window.Plotly.downloadImage({ data, layout: chart.layout }, { format: "png", width, height, filename: "newplot" });
  }, true);

  window.edpDense = { draw, hover };
})();
