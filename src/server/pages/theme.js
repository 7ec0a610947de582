// Dark, light, or as the system has it; the choice is kept in this browser.

const CHOICES = ['auto', 'dark', 'light'];
const LABELS = { auto: '◐ auto', dark: '● dark', light: '○ light' };
const system = matchMedia('(prefers-color-scheme: dark)');
const chosen = () => localStorage.getItem('wick.theme') ?? 'auto';

function apply(button) {
  const choice = chosen();
  document.documentElement.dataset.theme = choice === 'auto' ? (system.matches ? 'dark' : 'light') : choice;
  if (button) button.textContent = LABELS[choice];
}

export function themeButton(button) {
  apply(button);
  system.addEventListener('change', () => apply(button));
  button.addEventListener('click', () => {
    localStorage.setItem('wick.theme', CHOICES[(CHOICES.indexOf(chosen()) + 1) % CHOICES.length]);
    apply(button);
  });
}
