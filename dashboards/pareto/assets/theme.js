// Light or dark: the system's wish until the button was used, then what was chosen.
window.dash_clientside = Object.assign({}, window.dash_clientside, {
  edp: {
    theme: function (clicks) {
      const root = document.documentElement;
      if (clicks) {
        root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
        localStorage.setItem("edp-theme", root.dataset.theme);
      }
      const theme = root.dataset.theme;
      return [theme, theme === "dark" ? "Light" : "Dark"];
    },
  },
});
