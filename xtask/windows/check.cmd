@echo off
rem Runs the tests of weir one after the other, and keeps what they say in results\.
setlocal
cd /d "%~dp0"
if not exist results mkdir results
set failed=0

echo weir on this machine > results\machine.txt
ver >> results\machine.txt
weir.exe --version >> results\machine.txt 2>&1
weir.exe doctor >> results\machine.txt 2>&1
weir.exe designs > results\designs.txt 2>&1

echo checks > results\summary.txt
for %%t in (tests\*.exe) do call :one "%%t" "%%~nt"
if %failed%==0 (echo All passed.) else (echo %failed% programs failed.)
echo Please send back the folder "results".
exit /b %failed%

:one
echo %~2 ...
"%~1" > "results\%~2.txt" 2>&1
if errorlevel 1 (
    echo FAILED %~2 >> results\summary.txt
    echo     FAILED: results\%~2.txt says how
    set /a failed+=1
) else (
    echo passed %~2 >> results\summary.txt
)
exit /b 0
