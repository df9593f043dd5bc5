@echo off
rem Compares weir's designs on this machine, and keeps what comes out in results\.
setlocal
cd /d "%~dp0"
if not exist results mkdir results
set WEIR_RESULTS=%~dp0results

for %%k in (udp tcp) do (
    echo weir compare %%k ...
    weir.exe compare %%k > results\compare-%%k.txt
    type results\compare-%%k.txt
)
echo Please send back the folder "results".
