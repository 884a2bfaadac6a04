// What a person does in the console, by clicking. Each step ends when the console shows what came of it.
import { Console, PATIENCE } from './console.mjs';

await Console.run(async (console, { key }) => {
  const { page } = console;
  const row = (name) => page.getByRole('row').filter({ has: page.getByText(name, { exact: true }) });
  const select = (name) => row(name).locator('input[type=checkbox]').check({ force: true }); // it lies below its drawing
  const gone = async (name) => {
    for (const end = Date.now() + PATIENCE; (await row(name).count()) > 0; await console.settled()) {
      if (Date.now() > end) throw new Error(`${name} is still there`);
      await console.press('Refresh');
    }
  };
  const dialog = (title) => page.getByRole('dialog').filter({ hasText: title, visible: true });

  const steps = {
    'stop a run': async () => {
      await console.go('/runs');
      await select('to-stop');
      await console.press('Stop');
      await gone('to-stop');
    },
    'abort a run': async () => {
      await console.go('/runs');
      await select('to-abort');
      await console.press('Abort');
      await gone('to-abort');
    },
    'delete a fleet': async () => {
      await console.go('/fleets');
      await select('spare');
      await console.press('Delete');
      await gone('spare');
    },
    'delete a volume': async () => {
      await console.go('/volumes');
      await select('disk');
      await console.press('Delete');
      await console.press('Delete', dialog('Delete volumes'));
      await gone('disk');
    },
    'create a project': async () => {
      await console.go('/projects');
      await console.press('Create');
      await page.locator('input[name=project_name]').fill('lab');
      await console.press('Next');
      await console.press('Next');
      await console.press('Create');
      await page.waitForURL('**/projects/lab');
    },
    'create a user': async () => {
      await console.go('/users');
      await console.press('Add');
      await page.getByRole('textbox').first().fill('bea');
      await console.press('Save');
      await page.waitForURL('**/users/bea');
    },
    'rotate a token': async () => {
      await console.go('/users/ann/edit');
      await console.press('Rotate');
      await console.press('Rotate', dialog('Rotate token'));
      await dialog('Rotate token').waitFor({ state: 'detached' });
    },
    'add a member': async () => {
      await console.go('/projects/main');
      await page.getByPlaceholder('Enter username or email to add member').fill('ann');
      await page.getByRole('option', { name: 'ann', exact: true }).last().click();
      await row('ann').first().waitFor();
    },
    'add a secret': async () => {
      await console.go('/projects/main');
      await page.getByRole('button', { name: 'Add', exact: true }).filter({ visible: true }).last().click();
      await dialog('Create secret').locator('input').fill('hush');
      await dialog('Create secret').locator('textarea').fill('nobody knows');
      await console.press('Save', dialog('Create secret'));
      await row('hush').first().waitFor();
    },
    'add a public key': async () => {
      await console.go('/users/admin');
      await console.press('Add');
      await dialog('Add SSH key').locator('input').fill('laptop');
      await dialog('Add SSH key').locator('textarea').fill(key);
      await console.press('Add', dialog('Add SSH key'));
      await row('laptop').first().waitFor();
    },
    'delete a project': async () => {
      await console.go('/projects');
      await select('dull');
      await console.press('Delete');
      await console.press('Delete', dialog('Delete projects'));
      await gone('dull');
    },
    'delete a user': async () => {
      await console.go('/users');
      await select('carl');
      await console.press('Delete');
      await console.press('Delete', dialog('Confirm delete'));
      await gone('carl');
    },
  };
  for (const [name, step] of Object.entries(steps)) {
    await step().catch((error) => {
      throw new Error(`${name}: ${error.message}`, { cause: error });
    });
    await console.settled();
  }
  return Object.keys(steps);
});
