-- From the last schema of 0.1, which has the same tables, to the baseline. The recorded steps go, and
-- with them the functions that shut out servers of before 0.1. A server of 0.1 that still runs can
-- neither lead nor append any more. The program adds the checksums.

DROP FUNCTION rota.open_shelf();
DROP FUNCTION rota.open_agenda();
UPDATE rota.leader SET holder = '', epoch = epoch + 1, nonce = nonce + 1, address = '';
DROP TABLE rota.migrations;
